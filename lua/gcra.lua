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
local function drain(level, limit, window)
  if level == 0 then return 0 end
  if limit == 0 then return window end
  return ceil(level / limit)
end

-- The room for what stays the same from one request to the next: how much each
-- bucket holds, in units and in those of levels, and the record that is written.
local function prepare(c)
  c.burst, c.full, c.state = {}, {}, {0}
  for j = 1, c.policies do
    c.burst[j] = at_once(c, j)
    c.full[j] = c.burst[j] * c.window[j]
    c.state[2 * j], c.state[2 * j + 1] = c.window[j], 0
  end
end

-- Reads the record, and brings its levels to now. What was measured in another
-- window is converted, and cut to what the bucket can hold before it leaks: a
-- denial holds as long as it says, whatever the limit was before.
local function load(c, now)
  if not c.state then prepare(c) end
  local before, state, full = record.get(c), c.state, c.full
  if before and #before < 3 then error('WRONGTYPE the key holds no state of gcra', 0) end
  c.before = before
  for j = 1, c.policies do
    local level, window = before and before[2 * j + 1] or 0, state[2 * j]
    if level > 0 then
      if before[2 * j] ~= window then level = ceil(level / before[2 * j] * window) end
      if level > full[j] then level = full[j] end
      level = rest(level, now - before[1], c.limit[j])
    end
    state[2 * j + 1] = level
  end
end

-- Sets the times until the buckets are empty, and returns the longest.
local function empty(c)
  local state, limit, reset, longest = c.state, c.limit, c.reset, 0
  for j = 1, c.policies do
    local time = drain(state[2 * j + 1], limit[j], state[2 * j])
    reset[j] = time
    if time > longest then longest = time end
  end
  return longest
end

-- Writes the levels, which are those at now. They go when the last one is 0.
local function save(c, now)
  local longest = empty(c)
  c.state[1] = now
  record.set(c, c.state, now + max(1, longest + min(longest, 100)))
end

-- Pours n units into each bucket, as far as they fit.
local function add(c, now, n)
  local state, full = c.state, c.full
  for j = 1, c.policies do
    state[2 * j + 1] = min(state[2 * j + 1] + n * state[2 * j], full[j])
  end
  save(c, now)
end

-- Sets the time until bucket j has room for one unit more than remains.
local function effective(c, j)
  local window = c.state[2 * j]
  local over = c.state[2 * j + 1] + (c.remaining[j] + 1) * window - c.full[j]
  c.effective[j] = drain(over, c.limit[j], window)
end

function gcra.look(c, now)
  load(c, now)
  local fits, cost, state, full = true, c.cost, c.state, c.full
  for j = 1, c.policies do
    local left = floor((full[j] - state[2 * j + 1]) / state[2 * j])
    local allowed = cost == 0 or cost <= left
    c.allowed[j], c.remaining[j] = allowed, left
    fits = fits and allowed
  end
  return fits
end

function gcra.spend(c, now)
  add(c, now, c.cost)
  for j = 1, c.policies do
    c.retry[j] = 0
    c.remaining[j] = c.remaining[j] - c.cost
    effective(c, j)
  end
end

function gcra.explain(c, now, repair)
  local before = c.before
  if repair and before and before[1] > now then
    before[1] = now
    record.set(c, before)
  end
  empty(c)
  for j = 1, c.policies do
    local window = c.window[j]
    if c.allowed[j] then
      c.retry[j] = 0
    elseif c.cost > c.burst[j] then
      c.retry[j] = -1
    else
      c.retry[j] = drain(c.state[2 * j + 1] + c.cost * window - c.full[j], c.limit[j], window)
    end
    effective(c, j)
  end
end

function gcra.settle(c, now, at, delta)
  load(c, now)
  if delta > 0 then
    add(c, now, delta)
    return
  end
  if not c.before or at > c.before[1] then return end -- nothing was spent then
  local state, full = c.state, c.full
  for j = 1, c.policies do
    local units = min(-delta * state[2 * j], full[j])
    state[2 * j + 1] = max(0, state[2 * j + 1] - rest(units, now - at, c.limit[j]))
  end
  save(c, now)
end

return gcra
