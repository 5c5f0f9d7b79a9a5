-- gcra: a bucket per policy, which leaks. Twin of window/gcra.go.
--
-- Key     a record: the time in ms, then a window in ms and a level per policy. The
--         levels are those at the time.
--         While buckets of other windows are kept: the time, 0, how many buckets are
--         the charge's own, then a window, a level, a limit, and an age in ms per bucket
-- Options burst (0: the limit)
--
-- A level is measured in units × ms of its window, so that all steps are whole
-- numbers: a unit adds the window, and a millisecond takes the limit away.
--
-- Which buckets are kept, and how they leak, says window/gcra.go. A packed counter has
-- room for seven.
--
-- c.own holds
--   burst, full       by policy: how many units its bucket holds, and how full it is with them
--   excess            by policy: the time until its bucket loses what it cannot hold, or nil
--   before            the record, or nil; first, step: bucket k begins behind its number
--                     first + step × (k - 1)
--   count, current    how many buckets it has, and how many of these are those of the last charge
--   state             the record that is written
local record = module('record')
local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min
local unpack = table.unpack or unpack

local most_full = 2 ^ 53 -- a level
local longest_drain = 9223372036854 -- ms

-- How many units may pass at once.
local function at_once(c, j)
  if c.option[1] == 0 or c.limit[j] == 0 then return c.limit[j] end
  return c.option[1]
end

-- Returns the rest of a level after a time.
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

-- How long a bucket is kept after it was an own one.
local function holds(c, window, limit)
  local windows, burst = 1, c.option[1]
  if limit > 0 and burst > limit then windows = ceil(burst / limit) end
  return window * min(windows, floor(longest_drain / window))
end

-- Makes room for what the charge's next requests use again: how many units a bucket
-- holds, how full it is with them, and the record that is written.
local function prepare(c)
  local own = {burst = {}, full = {}, excess = {}, state = {0}, before = nil, first = 0, step = 0, count = 0, current = 0}
  c.own = own
  for j = 1, c.policies do
    own.burst[j] = at_once(c, j)
    own.full[j] = own.burst[j] * c.window[j]
    own.state[2 * j], own.state[2 * j + 1] = c.window[j], 0
  end
end

-- Reads the record.
local function read(c, now)
  local before, own = record.get(c), c.own
  own.before, c.stepped, own.count = before, false, 0
  if not before then return end
  if #before < 3 then error('WRONGTYPE the key holds no state of gcra', 0) end
  c.stepped = before[1] > now
  if before[2] == 0 then
    own.first, own.step, own.current, own.count = 3, 4, before[3], (#before - 3) / 4
  else
    own.first, own.step, own.count = 1, 2, (#before - 1) / 2
    own.current = own.count
  end
  if own.count % 1 > 0 then error('WRONGTYPE the key holds no state of gcra', 0) end
end

-- Where in the record bucket k begins: its window. The others follow.
local function place(own, k) return own.first + own.step * (k - 1) + 1 end

-- Which policy has a window: policy k if it does, else the first, or nil.
local function policy_of(c, window, k)
  if c.window[k] == window and k <= c.policies then return k end
  for j = 1, c.policies do
    if c.window[j] == window then return j end
  end
end

-- Which bucket of the record is that of policy j, or nil: limits may have come, gone or
-- changed places. It is that of the same window; without one, the own one in its place,
-- unless that is another policy's.
local function bucket(c, j)
  local own = c.own
  local before, window, count = own.before, c.window[j], own.count
  if j <= count and before[place(own, j)] == window then return j end
  for k = 1, count do
    if before[place(own, k)] == window then return k end
  end
  if j > own.current or policy_of(c, before[place(own, j)], j) then return nil end
  return j
end

-- How full the bucket of policy j is. What was measured in another window is converted,
-- and cut to what the bucket can hold before it leaks. Unless raw is set, a bucket that
-- holds more than the policy allows loses the excess when a window has passed since the last units
-- were spent, and counts as full at that time.
local function level_of(c, now, j, raw)
  local own = c.own
  local k = own.count > 0 and bucket(c, j)
  own.excess[j] = nil
  if not k then return 0 end
  local before, at = own.before, place(own, k)
  local measured, level, window = before[at], before[at + 1], c.window[j]
  if level == 0 then return 0 end
  local full, elapsed = own.full[j], max(0, now - before[1])
  if measured ~= window then
    level = min(ceil(level / measured * window), full)
  elseif raw or level <= full then
  elseif c.limit[j] == 0 or elapsed >= window then
    level = full
  else
    own.excess[j] = window - elapsed
  end
  return rest(level, elapsed, c.limit[j])
end

-- Returns the buckets that are kept beside the charge's own, with n units more; nil if no
-- such bucket is left.
local function keep(c, now, n)
  local own, kept = c.own
  local before = own.before
  for k = 1, own.count do
    local at = place(own, k)
    local window, level = before[at], before[at + 1]
    if not policy_of(c, window, k) then
      local limit, age, elapsed = 0, 0, max(0, now - before[1])
      if own.step == 4 then
        limit, age = before[at + 2], before[at + 3]
      elseif c.option[1] == 0 then
        limit = floor(level / window)
      end
      age = age + elapsed
      local left = holds(c, window, limit) - age
      if left > 0 then
        level = min(most_full, rest(level, elapsed, limit) + n * window)
        kept = kept or {}
        kept[#kept + 1] = {window, level, limit, age, left = left}
      end
    end
  end
  while kept and #kept > max(4, 7 - c.policies) do
    local first = 1
    for k = 2, #kept do
      if kept[k].left < kept[first].left then first = k end
    end
    table.remove(kept, first)
  end
  return kept
end

-- Writes the levels, which are those at now, and adds n units to the buckets that are kept.
-- The key expires when the last level is 0, and no kept bucket matters any more.
local function save(c, now, longest, n)
  local own = c.own
  local state, kept = own.state, own.count > 0 and keep(c, now, n)
  if kept then
    local all = {0, 0, c.policies}
    for j = 1, c.policies do
      local at, window, limit = 4 * j, c.window[j], c.limit[j]
      all[at], all[at + 1], all[at + 2], all[at + 3] = window, state[2 * j + 1], limit, 0
      longest = max(longest, holds(c, window, limit))
    end
    for _, one in ipairs(kept) do
      for i = 1, 4 do all[#all + 1] = one[i] end
      longest = max(longest, one.left)
    end
    state = all
  end
  state[1] = now
  record.set(c, now + max(1, longest + min(longest, grace)), unpack(state))
end

local function look(c, now)
  if not c.own then prepare(c) end
  read(c, now)
  local own, fits, cost = c.own, true, c.cost
  local state = own.state
  for j = 1, c.policies do
    local level = level_of(c, now, j)
    local left = max(0, floor((own.full[j] - level) / c.window[j]))
    local allowed = cost == 0 or cost <= left
    state[2 * j + 1] = level
    c.allowed[j], c.remaining[j] = allowed, left
    fits = fits and allowed
  end
  return fits
end

-- Returns the time until bucket j, which is at its level, holds n units.
local function falls(c, j, level, n)
  local limit, window, after = c.limit[j], c.window[j], c.own.excess[j]
  local wait = drain(level - n * window, limit, window)
  if after and wait >= after then
    wait = max(after, drain((c.own.burst[j] - n) * window, limit, window) - window + after)
  end
  return wait
end

-- Sets the times until bucket j, at its level, is empty, and until it has room for
-- one unit more than remains. Returns the first.
local function times(c, j, level)
  local reset = falls(c, j, level, 0)
  c.reset[j] = reset
  c.effective[j] = falls(c, j, level, c.own.burst[j] - c.remaining[j] - 1)
  return reset
end

local function spend(c, now)
  local cost, state, longest = c.cost, c.own.state, 0
  for j = 1, c.policies do
    local level = state[2 * j + 1] + cost * c.window[j]
    state[2 * j + 1], c.own.excess[j] = level, nil
    c.retry[j], c.remaining[j] = 0, c.remaining[j] - cost
    longest = max(longest, times(c, j, level))
  end
  save(c, now, longest, cost)
end

-- Writes the record anew, as one of now: it lies in the future.
local function mend(c, now)
  local own, longest = c.own, 0
  local before = own.before
  before[1] = now
  for k = 1, own.count do
    local at = place(own, k)
    if own.step == 4 then longest = max(longest, holds(c, before[at], before[at + 2]) - before[at + 3]) end
  end
  for j = 1, c.policies do
    local limit, window = c.limit[j], c.window[j]
    longest = max(longest, drain(min(own.state[2 * j + 1], own.full[j] + limit * window), limit, window))
  end
  record.set(c, now + max(1, longest + min(longest, grace)), unpack(before))
end

-- Keeps the record for a time: a denial is true for as long as it says. The record may have been
-- written under a higher limit, under which it mattered for less.
local function last(c, now, wait)
  local before = c.own.before
  if before and wait > 0 and record.lasts(c, before[1]) < now + wait then
    record.set(c, now + wait + min(wait, grace), unpack(before))
  end
end

local function explain(c, now, repair)
  if repair and c.stepped then mend(c, now) end
  local own, longest = c.own, 0
  for j = 1, c.policies do
    local level = own.state[2 * j + 1]
    if c.allowed[j] then
      c.retry[j] = 0
    elseif c.cost > own.burst[j] then
      c.retry[j] = -1
    else
      c.retry[j] = falls(c, j, level, own.burst[j] - c.cost)
      longest = max(longest, c.retry[j])
    end
    times(c, j, level)
  end
  if repair and not c.stepped then last(c, now, longest) end
end

-- Spends units now, above the limit if need be.
local function charge(c, now, n)
  local own, longest = c.own, 0
  local state = own.state
  for j = 1, c.policies do
    local limit, window = c.limit[j], c.window[j]
    local level = min(most_full, level_of(c, now, j, true) + n * window)
    state[2 * j + 1] = level
    longest = max(longest, drain(min(level, own.full[j] + limit * window), limit, window))
  end
  save(c, now, longest, n)
end

local function settle(c, now, at, delta)
  look(c, now)
  if delta > 0 then return charge(c, now, delta) end
  local own, left = c.own, 0
  local before = own.before
  if not before or at > before[1] then return end -- nothing was spent then
  for k = 1, own.count do
    local i = place(own, k)
    local window, level, back = before[i], before[i + 1], 0
    local j = policy_of(c, window, k)
    if j then
      back = rest(min(-delta * window, own.full[j]), now - at, c.limit[j])
    elseif at == before[1] then
      back = -delta * window
    end
    before[i + 1] = max(0, level - back)
    left = left + before[i + 1]
  end
  if left == 0 then return record.drop(c) end
  record.set(c, nil, unpack(before))
end

return {look = look, spend = spend, explain = explain, settle = settle}
