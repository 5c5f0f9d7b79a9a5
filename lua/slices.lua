-- slices: units counted per slice of the window. Twin of window/slices.go.
--
-- Key     a hash: one field per slice. The field is the slice's start in ms, its
--         value "<units>:<time of the latest unit - start>". One more field, w, is the
--         horizon (see horizon.lua): "<window>" or, unless till is 0, "<window>:<till>".
--         A packed counter is a field of a hash: see slicespack.lua.
-- Options weighted (0 or 1), size of a slice in ms (0: by count), count, min and
--         max of an adaptive slice in ms (0: not adaptive)
--
-- Slices are kept in order of time and do not overlap: each one's last is before
-- the next one's start. To write a number takes as long as to read ten, so that a
-- slice keeps its field and value as they are stored; what changes it drops them.
--
-- c.own holds
--   slices      as they look from now, oldest first: {start, last, count, and of those in a hash
--               field and value, as they are stored}
--   loaded      those of a hash as they were read
--   kept, till  the horizon; stored, the field w of a hash that is no record
local horizon, verdict = module('horizon'), module('verdict')
local call, find, sub, format = redis.call, string.find, string.sub, string.format
local unpack, floor, max, min = table.unpack or unpack, math.floor, math.max, math.min

-- How long a slice of a window is.
local function size(c, window)
  if c.option[5] > 0 then return min(c.option[5], window) end
  if c.option[2] > 0 then return min(c.option[2], window) end
  return math.ceil(window / c.option[3])
end

-- Whole numbers above 10^14 lose digits in Lua's own formatting.
local function field(start) return format('%d', start) end
local function value(s) return format('%d:%d', s.count, s.last - s.start) end

local function earlier(a, b) return a.start < b.start end

-- Reads the slices, oldest first. Redis keeps the order of a small hash, so that
-- there is seldom anything to sort.
local function stored(c)
  if c.member then return module('slicespack').read(c) end
  local raw, all, n, before, sorted, own = call('HGETALL', c.key), {}, 0, 0, true, c.own
  for i = 1, #raw, 2 do
    local f, v = raw[i], raw[i + 1]
    local colon = find(v, ':', 1, true)
    if f == 'w' then
      own.stored, own.kept = v, tonumber(sub(v, 1, (colon or 0) - 1))
      if colon then own.till = tonumber(sub(v, colon + 1)) end
    else
      local start = tonumber(f)
      n = n + 1
      all[n] = {
        start = start, count = tonumber(sub(v, 1, colon - 1)), last = start + sub(v, colon + 1),
        field = f, value = v,
      }
      sorted = sorted and before <= start
      before = start
    end
  end
  if not sorted then table.sort(all, earlier) end
  own.loaded = all
  return all
end

-- Calls redis with many arguments, a thousand a call: unpack has a limit.
local function call_with(command, key, args)
  for i = 1, #args, 1000 do
    call(command, key, unpack(args, i, min(i + 999, #args)))
  end
end

-- When a key expires at least that holds units of one window: at a multiple of a quarter of the
-- window, so that pass/slices.lua has to put that off once in a quarter.
local function expiry(now, window)
  local quarter = min(window, max(100, floor(window / 4)))
  return (floor(now / quarter) + 1) * quarter + window
end

-- Writes what differs from what was loaded. Writes that need memory come first:
-- without it nothing at all is changed. Without a time at which the key expires, it does
-- when it would have.
local function save(c, now, all, expires)
  if c.member then return module('slicespack').write(c, now, all, expires) end
  local written, gone, own = {}, {}, c.own
  local keeps = format(own.till > 0 and '%d:%d' or '%d', own.kept, own.till)
  if keeps ~= own.stored then written = {'w', keeps} end
  for i = 1, #all do
    local s = all[i]
    if not s.value then
      local f = field(s.start)
      written[#written + 1] = f
      written[#written + 1] = value(s)
      if f ~= s.field then s.gone = s.field end
    end
    s.kept = true
  end
  for i = 1, #own.loaded do
    local s = own.loaded[i]
    if not s.kept then s.gone = s.field end
    if s.gone then gone[#gone + 1] = s.gone end
  end
  call_with('HSET', c.key, written)
  call_with('HDEL', c.key, gone)
  if expires and own.till == 0 then expires = format('%d', max(tonumber(expires), expiry(now, own.kept))) end
  if expires then call('PEXPIREAT', c.key, expires) end
end

-- The slices as they look from now: units that lie in the future count as spent
-- just now. The second value says whether there were any.
local function clamp(all, now)
  if #all == 0 or all[#all].last <= now then return all, false end
  local clamped = {}
  for _, s in ipairs(all) do
    if s.last > now then
      s.start, s.last, s.value = min(s.start, now), now, nil
    end
    local previous = clamped[#clamped]
    if previous and previous.last >= s.start then
      previous.last = s.last
      previous.count = previous.count + s.count
      previous.value = nil
    else
      clamped[#clamped + 1] = s
    end
  end
  return clamped, true
end

-- Where slice i ends: a size after its start, unless it holds later units or the
-- next one begins sooner.
local function finish(all, i, long)
  local ends = max(all[i].start + long, all[i].last + 1)
  if all[i + 1] then ends = min(ends, all[i + 1].start) end
  return ends
end

-- Where slice i ends, if its units may be taken to be spread evenly; else nil. They may
-- not if the slice is longer than those of the window, as one from a charge under a longer
-- window can be.
local function spread(all, i, long)
  local ends = finish(all, i, long)
  if ends - all[i].start <= long then return ends end
end

-- How many units of slice i the window still holds.
local function weight(c, i, now, window)
  local s, edge = c.own.slices[i], now - window
  if s.last <= edge then return 0 end
  if c.option[1] == 0 or edge < s.start then return s.count end
  local ends = spread(c.own.slices, i, size(c, window))
  if not ends then return s.count end
  return math.ceil(s.count * (ends - 1 - edge) / (ends - s.start))
end

-- How many units the window of policy j holds.
local function count(c, now, j)
  local units, all, window = 0, c.own.slices, c.window[j]
  if c.option[1] == 0 then -- no slice counts in part
    local edge = now - window
    for i = #all, 1, -1 do
      if all[i].last <= edge then break end
      units = units + all[i].count
    end
    return units
  end
  for i = 1, #all do units = units + weight(c, i, now, window) end
  return units
end

-- The time until the window of policy j holds at most n units.
local function falls(c, now, j, n)
  local window, rest = c.window[j], count(c, now, j)
  if rest <= n then return 0 end
  -- Slices leave one after the other: while one counts in part, those before it
  -- are gone and those after it are whole.
  for i, s in ipairs(c.own.slices) do
    rest = rest - weight(c, i, now, window)
    if s.last > now - window and rest <= n then
      local edge = s.last
      if c.option[1] == 1 then
        local ends = spread(c.own.slices, i, size(c, window))
        if ends then edge = min(edge, ends - 1 - floor((n - rest) * (ends - s.start) / s.count)) end
      end
      return edge + window - now
    end
  end
  return 0
end

-- How long the slices of policy j have to be once n more units are spent.
local function length(c, now, n, j)
  local long = size(c, c.window[j])
  if c.option[5] > 0 then
    local free, shortest = max(0, c.limit[j] - count(c, now, j) - n), c.option[4]
    while long > shortest and 2 * free <= c.limit[j] do
      long = max(shortest, floor(long / 2))
      free = 2 * free
    end
  end
  return long
end

-- Adds n units at now. Then drops the slices that are not read any more, and merges
-- neighbours that are no longer than one slice together.
local function add(c, now, n)
  local all, own = c.own.slices, c.own
  local latest = all[#all]
  own.kept, own.till = horizon.after(c, now, own.kept, own.till, function() return latest and latest.last end)
  local finest, lengths = math.huge, {}
  for j = 1, c.policies do
    lengths[j] = length(c, now, n, j)
    finest = min(finest, lengths[j])
  end
  local start = now - now % finest
  if latest and (latest.start >= start or latest.last == now) then
    latest.count = latest.count + n
    latest.last = now
    latest.value = nil
  else
    if latest then start = max(start, latest.last + 1) end
    all[#all + 1] = {start = start, last = now, count = n}
  end
  local kept, k, previous = {}, 0
  for i = 1, #all do
    local s, long = all[i] -- long: the length for the finest policy that still sees the slice
    for j = 1, c.policies do
      if s.last > now - c.window[j] and not (long and long < lengths[j]) then long = lengths[j] end
    end
    if not long and s.last > now - c.keep then long = size(c, c.keep) end
    if long and previous and s.last - previous.start < long then
      previous.count = previous.count + s.count
      previous.last = s.last
      previous.value = nil
    elseif long then
      k = k + 1
      kept[k], previous = s, s
    end
  end
  own.slices = kept
  save(c, now, kept, c.expires)
end

-- Reads the slices of a charge.
local function load(c, now)
  local own = c.own or {slices = nil, loaded = nil, kept = 0, till = 0, stored = nil}
  c.own, own.kept, own.till, own.stored = own, 0, 0, nil
  own.slices, c.stepped = clamp(stored(c), now)
end

-- The time of the newest unit, or nil. With repair, writes the slices if some lay in the future.
local function newest(c, now, repair)
  local all, own = c.own.slices, c.own
  if repair and c.stepped then save(c, now, all, horizon.renewed(c, now, own.kept, own.till)) end
  return all[1] and all[#all].last
end

local look, spend, explain = verdict(load, count, falls, newest, add)

local function settle(c, now, at, delta)
  load(c, now)
  if delta > 0 then
    add(c, now, delta)
    return
  end
  local rest, found = {}, false
  for _, s in ipairs(c.own.slices) do
    if s.start <= at and at <= s.last then
      found = true
      s.count = s.count - min(s.count, -delta)
      s.value = nil
    end
    if s.count > 0 then rest[#rest + 1] = s end
  end
  if found or c.stepped then save(c, now, rest) end
end

return {look = look, spend = spend, explain = explain, settle = settle}
