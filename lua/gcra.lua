-- gcra: a bucket per policy, which leaks. Twin of window/gcra.go.
--
-- Key     a record: the time in ms, then a window in ms and a level per policy. The
--         levels are those at the time.
-- Options burst (0: the limit)
--
-- A level is measured in units × ms of its window, so that all steps are whole
-- numbers: a unit adds the window, and a millisecond takes the limit away.
local gcra, record = {}, modules.record()
local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min

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
local function drain(c, j, level)
  if level == 0 then return 0 end
  if c.limit[j] == 0 then return c.window[j] end
  return ceil(level / c.limit[j])
end

-- How full bucket j is. What was measured in another window is converted, and cut
-- to what the bucket can hold before it leaks: a denial holds as long as it says,
-- whatever the limit was before.
local function level(c, now, j)
  local numbers = c.numbers
  local level = numbers and numbers[2 * j + 1]
  if not level then return 0 end
  local before, window = numbers[2 * j], c.window[j]
  if before ~= window then level = ceil(level / before * window) end
  local full = c.burst[j] * window
  if level > full then level = full end
  return rest(level, now - numbers[1], c.limit[j])
end

local function load(c)
  c.numbers = record.get(c)
  if c.numbers and #c.numbers < 3 then error('WRONGTYPE the key holds no state of gcra', 0) end
  if not c.level then
    c.level, c.burst = {}, {}
    for j = 1, c.policies do c.burst[j] = at_once(c, j) end
  end
end

-- Brings the levels to now.
local function refresh(c, now)
  for j = 1, c.policies do c.level[j] = level(c, now, j) end
end

-- Writes the levels, which are those at now. They go when the last one is 0.
local function save(c, now)
  local numbers, longest = {now}, 0
  for j = 1, c.policies do
    numbers[2 * j], numbers[2 * j + 1] = c.window[j], c.level[j]
    longest = max(longest, drain(c, j, c.level[j]))
  end
  record.set(c, numbers, now + max(1, longest + min(longest, 100)))
end

-- Pours n units into each bucket, as far as they fit.
local function add(c, now, n)
  for j = 1, c.policies do
    local burst, window = c.burst[j], c.window[j]
    c.level[j] = min(c.level[j] + min(n, burst) * window, burst * window)
  end
  save(c, now)
end

-- Sets the times until bucket j is empty, and until it has room for one unit more
-- than remains.
local function times(c, j)
  local level = c.level[j]
  c.reset[j] = drain(c, j, level)
  c.effective[j] = drain(c, j, level + (c.remaining[j] + 1 - c.burst[j]) * c.window[j])
end

function gcra.look(c, now)
  load(c)
  refresh(c, now)
  local fits = true
  for j = 1, c.policies do
    local burst, window = c.burst[j], c.window[j]
    local left = floor((burst * window - c.level[j]) / window)
    c.allowed[j] = c.cost == 0 or c.cost <= left
    c.remaining[j] = left
    fits = fits and c.allowed[j]
  end
  return fits
end

function gcra.spend(c, now)
  add(c, now, c.cost)
  for j = 1, c.policies do
    c.retry[j] = 0
    c.remaining[j] = c.remaining[j] - c.cost
    times(c, j)
  end
end

function gcra.explain(c, now, repair)
  if repair and c.numbers and c.numbers[1] > now then
    c.numbers[1] = now
    record.set(c, c.numbers)
  end
  for j = 1, c.policies do
    local burst = c.burst[j]
    if c.allowed[j] then
      c.retry[j] = 0
    elseif c.cost > burst then
      c.retry[j] = -1
    else
      c.retry[j] = drain(c, j, c.level[j] + (c.cost - burst) * c.window[j])
    end
    times(c, j)
  end
end

function gcra.settle(c, now, at, delta)
  load(c)
  refresh(c, now)
  if delta > 0 then
    add(c, now, delta)
    return
  end
  if not c.numbers or at > c.numbers[1] then return end -- nothing was spent then
  for j = 1, c.policies do
    local units = min(-delta, c.burst[j])
    c.level[j] = max(0, c.level[j] - rest(units * c.window[j], now - at, c.limit[j]))
  end
  save(c, now)
end

return gcra
