-- Clients at random offsets into a live DASH stream, for wrk and `thalweg-lab load --script`:
--
--    wrk -t 1 -c 100 -d 60s -s live-offsets.lua http://HOST/live/NAME/manifest.mpd -- 60
--
-- The script reads the MPD, and again after each update period. Each client requests on average
-- one complete segment per segment duration, from any track, up to 60 s (or the given number of
-- seconds) behind the live edge. The MPD must have a SegmentTemplate with @duration and $Number$.

local offset_max_s = 60
-- Wait of clients before the first manifest has arrived, at most.
local START_MS = 1000
local manifest_request, directory
-- The stream as in the latest MPD, and the time of the next request for it.
local stream, refresh_at = nil, 0

function init(args)
   if args[1] then
      offset_max_s = tonumber(args[1]) or error("not a number of seconds: " .. args[1])
   end
   -- The address of a table differs between threads.
   math.randomseed(os.time() + tonumber(tostring({}):match("0x(%x+)"), 16) % 100000)
   manifest_request = wrk.format("GET")
   directory = wrk.path:match("^[^?]*/")
end

function delay()
   return math.random(0, stream and 2 * stream.segment_s * 1000 or START_MS)
end

function request()
   local now = os.time()
   if not stream or now >= refresh_at then
      refresh_at = now + 1
      return manifest_request
   end
   local offset_s = math.random() * offset_max_s
   local complete = math.floor((now - stream.start - offset_s) / stream.segment_s)
   local number = math.max(stream.first, stream.first + complete - 1)
   local track = stream.tracks[math.random(#stream.tracks)]
   local path = stream.media:gsub("%$(%w+)%$", { RepresentationID = track, Number = string.format("%d", number) })
   return wrk.format("GET", directory .. path)
end

function response(status, headers, body)
   local kind = headers["Content-Type"] or headers["content-type"] or ""
   if status == 200 and kind:find("dash+xml", 1, true) then
      stream = read(body)
      refresh_at = os.time() + stream.update_s
   end
end

function read(mpd)
   local root = mpd:match("<MPD[^>]*>")
   local period = last(mpd:gmatch("<Period.-</Period>"))
   local set = period:match('<AdaptationSet[^>]*contentType="video".-</AdaptationSet>') or
      period:match("<AdaptationSet.-</AdaptationSet>")
   local template = set:match("<SegmentTemplate[^>]*>")
   local tracks = {}
   for representation in set:gmatch("<Representation[^>]*>") do
      table.insert(tracks, attribute(representation, "id"))
   end
   return {
      start = unix_time(attribute(root, "availabilityStartTime")) + seconds(attribute(period, "start")),
      update_s = seconds(attribute(root, "minimumUpdatePeriod")),
      segment_s = attribute(template, "duration") / attribute(template, "timescale"),
      first = tonumber(attribute(template, "startNumber")),
      media = attribute(template, "media"),
      tracks = tracks,
   }
end

function last(values)
   local found
   for value in values do found = value end
   return found
end

function attribute(tag, name)
   return tag:match("%s" .. name .. '="([^"]*)"') or error("the MPD has no attribute " .. name)
end

-- Converts a duration such as PT1H2M3.5S.
function seconds(duration)
   local units, sum = { D = 86400, H = 3600, M = 60, S = 1 }, 0
   for value, unit in duration:gmatch("([%d.]+)([DHMS])") do
      sum = sum + value * units[unit]
   end
   return sum
end

-- Converts a time such as 2026-11-20T23:35:18.250Z. os.time would take it as local time.
function unix_time(text)
   local year, month, day, hour, minute, second = text:match("(%d+)-(%d+)-(%d+)T(%d+):(%d+):([%d.]+)Z")
   if tonumber(month) <= 2 then year, month = year - 1, month + 12 end
   local days = 365 * year + math.floor(year / 4) - math.floor(year / 100) + math.floor(year / 400) +
      math.floor((153 * (month - 3) + 2) / 5) + day - 719469
   return ((days * 24 + hour) * 60 + minute) * 60 + second
end
