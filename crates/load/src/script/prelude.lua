-- Environment for wrk scripts: builds the table `wrk` from `native`, a table passed by the program.
local native = ...

wrk = {
   scheme = native.scheme, host = native.host, port = native.port, path = native.path,
   method = "GET", headers = native.headers,
}

-- Accept any value for `%s`, as LuaJIT does and scripts expect. Lua 5.1 accepts only strings and
-- numbers.
local format = string.format
function string.format(pattern, ...)
   local values, at = { n = select("#", ...), ... }, 0
   for kind in tostring(pattern):gmatch("%%[-+ #0]*%d*%.?%d*(.)") do
      if kind ~= "%" then
         at = at + 1
         if kind == "s" and at <= values.n then values[at] = tostring(values[at]) end
      end
   end
   return format(pattern, unpack(values, 1, values.n))
end

-- Print to the default output file, which may be standard error.
function print(...)
   local texts = {}
   for at = 1, select("#", ...) do texts[at] = tostring((select(at, ...))) end
   io.write(table.concat(texts, "\t"), "\n")
end

if native.is_output_taken then io.output(io.stderr) end

function wrk.lookup(host, service)
   local addresses, wrong = native.lookup(host, tostring(service))
   return addresses or error(wrong, 2)
end

wrk.connect = native.connect

local is_in_init = false

function wrk.init(args)
   if not wrk.headers["Host"] then
      local host = wrk.host:find(":", 1, true) and "[" .. wrk.host .. "]" or wrk.host
      wrk.headers["Host"] = wrk.port and host .. ":" .. wrk.port or host
   end
   -- Some scripts call this function from their own init, so avoid endless recursion.
   if type(init) == "function" and not is_in_init then
      is_in_init = true
      init(args)
   end
   local whole = wrk.format()
   wrk.request = function() return whole end
end

function wrk.format(method, path, headers, body)
   headers, body = headers or wrk.headers, body or wrk.body
   headers["Host"] = headers["Host"] or wrk.headers["Host"]
   headers["Content-Length"] = body and string.len(body)
   local lines = { (method or wrk.method) .. " " .. (path or wrk.path) .. " HTTP/1.1" }
   for name, value in pairs(headers) do
      lines[#lines + 1] = name .. ": " .. tostring(value)
   end
   lines[#lines + 1] = ""
   lines[#lines + 1] = body or ""
   return table.concat(lines, "\r\n")
end
