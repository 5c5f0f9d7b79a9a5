-- slices: units counted per slice of the window. Twin of window/slices.go.
--
-- Key     a hash: one field per slice. The field is the slice's start in ms, its
--         value "<units>:<time of the latest unit - start>".
-- Options weighted (0 or 1), size of a slice in ms (0: by count), count, min and
--         max of an adaptive slice in ms (0: not adaptive)
--
-- Slices are kept in order of time and do not overlap: each one's last is before
-- the next one's start.
local slices = {}

local function size(c, window)
  if c.option[5] > 0 then return math.min(c.option[5], window) end
  if c.option[2] > 0 then return math.min(c.option[2], window) end
  return math.ceil(window / c.option[3])
end

-- Whole numbers above 10^14 lose digits in Lua's own formatting.
local function field(start) return string.format('%.0f', start) end
local function value(s) return string.format('%.0f:%.0f', s.count, s.last - s.start) end

local function earlier(a, b) return a.start < b.start end

-- Reads the slices, oldest first. Redis keeps the order of a small hash, so that
-- there is seldom anything to sort.
local function load(c)
  local raw, all, sorted = redis.call('HGETALL', c.key), {}, true
  c.stored = {}
  for i = 1, #raw, 2 do
    local colon = string.find(raw[i + 1], ':', 1, true)
    local start = tonumber(raw[i])
    local s = {
      start = start,
      count = tonumber(string.sub(raw[i + 1], 1, colon - 1)),
      last = start + tonumber(string.sub(raw[i + 1], colon + 1)),
    }
    c.stored[raw[i]] = raw[i + 1]
    sorted = sorted and (#all == 0 or earlier(all[#all], s))
    all[#all + 1] = s
  end
  if not sorted then table.sort(all, earlier) end
  return all
end

-- Writes what differs from the stored fields. Writes that need memory come
-- first: without it nothing at all is changed.
local function save(c, all)
  local gone = c.stored
  c.stored = {}
  for _, s in ipairs(all) do
    local f, v = field(s.start), value(s)
    if gone[f] ~= v then redis.call('HSET', c.key, f, v) end
    gone[f] = nil
    c.stored[f] = v
  end
  for f in pairs(gone) do redis.call('HDEL', c.key, f) end
  redis.call('PEXPIREAT', c.key, c.expires)
end

-- The slices as they look from now: units that lie in the future count as spent
-- just now. The second value says whether there were any.
local function clamp(all, now)
  if #all == 0 or all[#all].last <= now then return all, false end
  local clamped = {}
  for _, s in ipairs(all) do
    s.start, s.last = math.min(s.start, now), math.min(s.last, now)
    local previous = clamped[#clamped]
    if previous and previous.last >= s.start then
      previous.last = s.last
      previous.count = previous.count + s.count
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

-- How many units of slice i the window still holds.
local function weight(c, i, now, window)
  local s, edge = c.slices[i], now - window
  if s.last <= edge then return 0 end
  if c.option[1] == 0 or edge < s.start then return s.count end
  local finish = finish(c.slices, i, size(c, window))
  return math.ceil(s.count * (finish - 1 - edge) / (finish - s.start))
end

local function total(c, now, window)
  local total = 0
  for i = 1, #c.slices do total = total + weight(c, i, now, window) end
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
        local finish = finish(c.slices, i, size(c, window))
        edge = math.min(edge, finish - 1 - math.floor((target - rest) * (finish - s.start) / s.count))
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

-- Adds n units at now; then drops the slices that no policy sees, and merges
-- neighbours that are no longer than one slice together.
local function add(c, now, n)
  local finest, lengths = math.huge, {}
  for j = 1, c.policies do
    lengths[j] = length(c, now, n, j)
    finest = math.min(finest, lengths[j])
  end
  local all, start = c.slices, now - now % finest
  local newest = all[#all]
  if newest and (newest.start >= start or newest.last == now) then
    newest.count = newest.count + n
    newest.last = now
  else
    if newest then start = math.max(start, newest.last + 1) end
    all[#all + 1] = {start = start, last = now, count = n}
  end
  local kept = {}
  for _, s in ipairs(all) do
    local length -- that of the finest policy that still sees the slice
    for j = 1, c.policies do
      if s.last > now - c.window[j] then
        length = math.min(length or math.huge, lengths[j])
      end
    end
    local previous = kept[#kept]
    if length and previous and s.last - previous.start < length then
      previous.count = previous.count + s.count
      previous.last = s.last
    elseif length then
      kept[#kept + 1] = s
    end
  end
  c.slices = kept
  save(c, kept)
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
  if c.stepped and repair then save(c, c.slices) end
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
  for i, s in ipairs(c.slices) do
    if s.start <= at and at <= s.last then
      s.count = s.count - math.min(s.count, -delta)
      if s.count == 0 then table.remove(c.slices, i) end
      save(c, c.slices)
      return
    end
  end
  if c.stepped then save(c, c.slices) end
end

return slices
