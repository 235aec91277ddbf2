-- Requests the lines of a file at random, for wrk and `thalweg-lab load --script`:
--
--    wrk -t 1 -c 32 -d 10s -s requests.lua http://HOST/ -- FILE
--
-- A line is a path and a byte range, such as "/a.mp4 100-199", or "-" for the whole content.

local requests = {}

function init(args)
   local host = wrk.headers["Host"]
   for line in io.lines(args[1]) do
      local path, range = line:match("^(%S+) (%S+)$")
      local headers = { Host = host }
      if range ~= "-" then headers["Range"] = "bytes=" .. range end
      table.insert(requests, wrk.format("GET", path, headers))
   end
   -- The address of a table differs between threads.
   math.randomseed(os.time() + tonumber(tostring({}):match("0x(%x+)"), 16) % 100000)
end

function request()
   return requests[math.random(#requests)]
end
