-- slices: units counted per slice of the window. Twin of window/slices.go.
--
-- Key     a hash: one field per slice. The field is the slice's start in ms, its
--         value "<units>:<time of the latest unit - start>". One more field, w, is the
--         horizon (see horizon.lua): "<window>" or, unless till is 0, "<window>:<till>".
--         Of packed counters, a record: the time in ms; then per slice, oldest first: how
--         long before that time its latest unit is, how long before that one its start,
--         units; then the horizon's window, unless all of the hash have it and till is 0;
--         then till, unless it is 0. The field w of the hash is the window that its
--         counters have, in 6 bytes.
-- Options weighted (0 or 1), size of a slice in ms (0: by count), count, min and
--         max of an adaptive slice in ms (0: not adaptive)
--
-- Slices are kept in order of time and do not overlap: each one's last is before
-- the next one's start. To write a number takes as long as to read ten, so that a
-- slice keeps its field and value as they are stored; what changes it drops them.
local slices, horizon = {}, module('horizon')
local record -- from the first packed counter on
local call, find, sub, format = redis.call, string.find, string.sub, string.format
local unpack, min = table.unpack or unpack, math.min

local function size(c, window)
  if c.option[5] > 0 then return math.min(c.option[5], window) end
  if c.option[2] > 0 then return math.min(c.option[2], window) end
  return math.ceil(window / c.option[3])
end

-- Whole numbers above 10^14 lose digits in Lua's own formatting.
local function field(start) return format('%d', start) end
local function value(s) return format('%d:%d', s.count, s.last - s.start) end

local function earlier(a, b) return a.start < b.start end

-- Reads the slices of a packed counter.
local function load_packed(c)
  record = record or module('record')
  c.shared = 'w'
  local numbers, all = record.get(c), {}
  c.common = c.sharing and #c.sharing == 6 and struct.unpack('>I6', c.sharing) or 0
  c.kept, c.till = 0, 0
  if not numbers then return all end
  if #numbers < 4 then error('WRONGTYPE the key holds no slices', 0) end
  local rest = (#numbers - 1) % 3 -- numbers of the horizon
  c.kept = rest == 0 and c.common or numbers[#numbers - rest + 1]
  if rest == 2 then c.till = numbers[#numbers] end
  for k = 2, #numbers - rest, 3 do
    local last = numbers[1] - numbers[k]
    all[#all + 1] = {start = last - numbers[k + 1], last = last, count = numbers[k + 2]}
  end
  return all
end

local function save_packed(c, now, all, expires)
  if not all[1] then return record.drop(c) end
  local numbers = {now}
  for i, s in ipairs(all) do
    numbers[3 * i - 1], numbers[3 * i], numbers[3 * i + 1] = now - s.last, s.last - s.start, s.count
  end
  if not c.sharing then
    c.common = c.kept
    call('HSET', c.key, 'w', struct.pack('>I6', c.kept))
  end
  if c.till > 0 or c.kept ~= c.common then numbers[#numbers + 1] = c.kept end
  if c.till > 0 then numbers[#numbers + 1] = c.till end
  record.set(c, tonumber(expires), unpack(numbers))
end

-- Reads the slices, oldest first. Redis keeps the order of a small hash, so that
-- there is seldom anything to sort.
local function load(c)
  if c.member then return load_packed(c) end
  local raw, all, n, before, sorted = call('HGETALL', c.key), {}, 0, 0, true
  c.kept, c.till, c.stored = 0, 0, nil
  for i = 1, #raw, 2 do
    local f, v = raw[i], raw[i + 1]
    local colon = find(v, ':', 1, true)
    if f == 'w' then
      c.stored, c.kept = v, tonumber(sub(v, 1, (colon or 0) - 1))
      if colon then c.till = tonumber(sub(v, colon + 1)) end
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
  c.loaded = all
  return all
end

-- Calls redis with many arguments, a thousand a call: unpack has a limit.
local function call_with(command, key, args)
  for i = 1, #args, 1000 do
    call(command, key, unpack(args, i, min(i + 999, #args)))
  end
end

-- Writes what differs from what was loaded. Writes that need memory come first:
-- without it nothing at all is changed. Without a time at which the key expires, it does
-- when it would have.
local function save(c, now, all, expires)
  if c.member then return save_packed(c, now, all, expires) end
  local written, gone = {}, {}
  local keeps = format(c.till > 0 and '%d:%d' or '%d', c.kept, c.till)
  if keeps ~= c.stored then written = {'w', keeps} end
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
  for i = 1, #c.loaded do
    local s = c.loaded[i]
    if not s.kept then s.gone = s.field end
    if s.gone then gone[#gone + 1] = s.gone end
  end
  call_with('HSET', c.key, written)
  call_with('HDEL', c.key, gone)
  if expires then call('PEXPIREAT', c.key, expires) end
end

-- The slices as they look from now: units that lie in the future count as spent
-- just now. The second value says whether there were any.
local function clamp(all, now)
  if #all == 0 or all[#all].last <= now then return all, false end
  local clamped = {}
  for _, s in ipairs(all) do
    if s.last > now then
      s.start, s.last, s.value = math.min(s.start, now), now, nil
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
local function finish(all, i, length)
  local finish = math.max(all[i].start + length, all[i].last + 1)
  if all[i + 1] then finish = math.min(finish, all[i + 1].start) end
  return finish
end

-- Where slice i ends, if its units may be taken to be spread evenly; else nil. They may
-- not if the slice is longer than those of the window, as one from a charge under a longer
-- window can be.
local function spread(all, i, length)
  local finish = finish(all, i, length)
  if finish - all[i].start <= length then return finish end
end

-- How many units of slice i the window still holds.
local function weight(c, i, now, window)
  local s, edge = c.slices[i], now - window
  if s.last <= edge then return 0 end
  if c.option[1] == 0 or edge < s.start then return s.count end
  local finish = spread(c.slices, i, size(c, window))
  if not finish then return s.count end
  return math.ceil(s.count * (finish - 1 - edge) / (finish - s.start))
end

local function total(c, now, window)
  local total, all = 0, c.slices
  if c.option[1] == 0 then -- no slice counts in part
    local edge = now - window
    for i = #all, 1, -1 do
      if all[i].last <= edge then break end
      total = total + all[i].count
    end
    return total
  end
  for i = 1, #all do total = total + weight(c, i, now, window) end
  return total
end

-- The time until the window holds at most target units; the whole window if
-- target is below 0.
local function falls(c, now, window, target)
  if target < 0 then return window end
  local rest = total(c, now, window)
  if rest <= target then return 0 end
  -- Slices leave one after the other: while one counts in part, those before it
  -- are gone and those after it are whole.
  for i, s in ipairs(c.slices) do
    rest = rest - weight(c, i, now, window)
    if s.last > now - window and rest <= target then
      local edge = s.last
      if c.option[1] == 1 then
        local finish = spread(c.slices, i, size(c, window))
        if finish then edge = math.min(edge, finish - 1 - math.floor((target - rest) * (finish - s.start) / s.count)) end
      end
      return edge + window - now
    end
  end
  return 0
end

-- How long the slices of policy j have to be once n more units are spent.
local function length(c, now, n, j)
  local length = size(c, c.window[j])
  if c.option[5] > 0 then
    local free, shortest = math.max(0, c.limit[j] - total(c, now, c.window[j]) - n), c.option[4]
    while length > shortest and 2 * free <= c.limit[j] do
      length = math.max(shortest, math.floor(length / 2))
      free = 2 * free
    end
  end
  return length
end

-- Adds n units at now. Then drops the slices that nobody looks at any more, and merges
-- neighbours that are no longer than one slice together.
local function add(c, now, n)
  local newest = c.slices[#c.slices]
  c.kept, c.till = horizon.after(c, now, c.kept, c.till, function() return newest and newest.last end)
  local finest, lengths = math.huge, {}
  for j = 1, c.policies do
    lengths[j] = length(c, now, n, j)
    finest = math.min(finest, lengths[j])
  end
  local all, start = c.slices, now - now % finest
  if newest and (newest.start >= start or newest.last == now) then
    newest.count = newest.count + n
    newest.last = now
    newest.value = nil
  else
    if newest then start = math.max(start, newest.last + 1) end
    all[#all + 1] = {start = start, last = now, count = n}
  end
  local kept, k, previous = {}, 0
  for i = 1, #all do
    local s, length = all[i] -- length: that of the finest policy that still sees the slice
    for j = 1, c.policies do
      if s.last > now - c.window[j] and not (length and length < lengths[j]) then length = lengths[j] end
    end
    if not length and s.last > now - c.keep then length = size(c, c.keep) end
    if length and previous and s.last - previous.start < length then
      previous.count = previous.count + s.count
      previous.last = s.last
      previous.value = nil
    elseif length then
      k = k + 1
      kept[k], previous = s, s
    end
  end
  c.slices = kept
  save(c, now, kept, c.expires)
end

function slices.look(c, now)
  c.slices, c.stepped = clamp(load(c), now)
  local fits = true
  for j = 1, c.policies do
    local left = c.limit[j] - total(c, now, c.window[j])
    c.allowed[j] = c.cost == 0 or c.cost <= left
    c.remaining[j] = left
    fits = fits and c.allowed[j]
  end
  return fits
end

function slices.spend(c, now)
  add(c, now, c.cost)
  for j = 1, c.policies do
    c.remaining[j] = c.remaining[j] - c.cost
    c.retry[j], c.reset[j], c.effective[j] = 0, c.window[j], c.window[j]
    if c.remaining[j] == 0 then
      c.effective[j] = falls(c, now, c.window[j], c.limit[j] - 1)
    end
  end
end

function slices.explain(c, now, repair)
  if c.stepped and repair then save(c, now, c.slices, horizon.renewed(c, now, c.kept, c.till)) end
  for j = 1, c.policies do
    local limit, window = c.limit[j], c.window[j]
    local count = limit - c.remaining[j]
    if c.allowed[j] then
      c.retry[j] = 0
    elseif c.cost > limit then
      c.retry[j] = -1
    else
      c.retry[j] = falls(c, now, window, limit - c.cost)
    end
    c.reset[j], c.effective[j] = 0, window
    if count > 0 then
      c.reset[j] = falls(c, now, window, 0)
      c.effective[j] = falls(c, now, window, math.min(count, limit) - 1)
    end
    c.remaining[j] = math.max(0, c.remaining[j])
  end
end

function slices.settle(c, now, at, delta)
  c.slices, c.stepped = clamp(load(c), now)
  if delta > 0 then
    add(c, now, delta)
    return
  end
  local rest, found = {}, false
  for _, s in ipairs(c.slices) do
    if s.start <= at and at <= s.last then
      found = true
      s.count = s.count - math.min(s.count, -delta)
      s.value = nil
    end
    if s.count > 0 then rest[#rest + 1] = s end
  end
  if found or c.stepped then save(c, now, rest) end
end

return slices
