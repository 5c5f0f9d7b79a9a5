-- gcra: a bucket per policy, which leaks. Twin of window/gcra.go.
--
-- Key     a record: the time in ms, then a window in ms and a level per policy. The
--         levels are those at the time.
-- Options burst (0: the limit)
--
-- A level is measured in units × ms of its window, so that all steps are whole
-- numbers: a unit adds the window, and a millisecond takes the limit away.
local gcra, record = {}, module('record')
local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min
local unpack = table.unpack or unpack

-- How many units may pass at once.
local function at_once(c, j)
  if c.option[1] == 0 or c.limit[j] == 0 then return c.limit[j] end
  return c.option[1]
end

-- What is left of a level after a time.
local function rest(level, elapsed, limit)
  if elapsed <= 0 then return level end
  return max(0, level - elapsed * limit)
end

-- The time until a level is gone; the whole window if it never is.
local function drain(level, limit, window)
  if level == 0 then return 0 end
  if limit == 0 then return window end
  return ceil(level / limit)
end

-- Makes room for what the charge's next requests use again: how many units a bucket
-- holds, how full it is with them, and the record that is written.
local function prepare(c)
  c.burst, c.full, c.state = {}, {}, {0}
  for j = 1, c.policies do
    c.burst[j] = at_once(c, j)
    c.full[j] = c.burst[j] * c.window[j]
    c.state[2 * j], c.state[2 * j + 1] = c.window[j], 0
  end
end

-- Which bucket of the record before is that of policy j, or nil: limits may have come,
-- gone or changed places. It is that of the same window; without one, the one in its
-- place, unless that is another policy's.
local function bucket(c, j, before)
  local window, there = c.window[j], before[2 * j]
  if there == window then return j end
  for k = 1, (#before - 1) / 2 do
    if before[2 * k] == window then return k end
  end
  if not there then return nil end
  for i = 1, c.policies do
    if c.window[i] == there then return nil end
  end
  return j
end

-- How full the bucket of policy j is, by the record before. What was measured in another
-- window is converted, and cut to what the bucket can hold before it leaks: a denial
-- holds as long as it says, whatever the limit was before.
local function level(c, now, j, before)
  local k = bucket(c, j, before)
  local level = k and before[2 * k + 1] or 0
  if level == 0 then return 0 end
  local measured, window, full = before[2 * k], c.window[j], c.full[j]
  if measured ~= window then level = ceil(level / measured * window) end
  if level > full then level = full end
  return rest(level, now - before[1], c.limit[j])
end

-- Writes the levels, which are those at now. They go when the last one is 0.
local function save(c, now, longest)
  c.state[1] = now
  record.set(c, now + max(1, longest + min(longest, 100)), unpack(c.state))
end

function gcra.look(c, now)
  if not c.state then prepare(c) end
  local before = record.get(c)
  if before and #before < 3 then error('WRONGTYPE the key holds no state of gcra', 0) end
  c.before = before
  local fits, cost, state = true, c.cost, c.state
  for j = 1, c.policies do
    local level = before and level(c, now, j, before) or 0
    local left = floor((c.full[j] - level) / c.window[j])
    local allowed = cost == 0 or cost <= left
    state[2 * j + 1] = level
    c.allowed[j], c.remaining[j] = allowed, left
    fits = fits and allowed
  end
  return fits
end

-- Sets the times until bucket j, at its level, is empty, and until it has room for
-- one unit more than remains. Returns the first.
local function times(c, j, level)
  local limit, window = c.limit[j], c.window[j]
  local reset = drain(level, limit, window)
  c.reset[j] = reset
  c.effective[j] = drain(c.remaining[j] * window - (c.full[j] - level) + window, limit, window)
  return reset
end

function gcra.spend(c, now)
  local cost, state, longest = c.cost, c.state, 0
  for j = 1, c.policies do
    local level = min(state[2 * j + 1] + cost * c.window[j], c.full[j])
    state[2 * j + 1] = level
    c.retry[j], c.remaining[j] = 0, c.remaining[j] - cost
    longest = max(longest, times(c, j, level))
  end
  save(c, now, longest)
end

function gcra.explain(c, now, repair)
  local before = c.before
  if repair and before and before[1] > now then
    before[1] = now
    record.set(c, nil, unpack(before))
  end
  for j = 1, c.policies do
    local level = c.state[2 * j + 1]
    if c.allowed[j] then
      c.retry[j] = 0
    elseif c.cost > c.burst[j] then
      c.retry[j] = -1
    else
      c.retry[j] = drain(c.cost * c.window[j] - (c.full[j] - level), c.limit[j], c.window[j])
    end
    times(c, j, level)
  end
end

function gcra.settle(c, now, at, delta)
  if delta > 0 then c.cost = delta end
  gcra.look(c, now)
  if delta > 0 then
    gcra.spend(c, now)
    return
  end
  if not c.before or at > c.before[1] then return end -- nothing was spent then
  local state, longest = c.state, 0
  for j = 1, c.policies do
    local limit, window = c.limit[j], c.window[j]
    local back = rest(min(-delta * window, c.full[j]), now - at, limit)
    local level = max(0, state[2 * j + 1] - back)
    state[2 * j + 1] = level
    longest = max(longest, drain(level, limit, window))
  end
  save(c, now, longest)
end

return gcra
