-- gcra: a bucket per policy, which leaks. Twin of window/gcra.go.
--
-- Key     a record: the time in ms, then a window in ms and a level per policy. The
--         levels are those at the time.
-- Options burst (0: the limit)
--
-- A level is measured in units × ms of its window, so that all steps are whole
-- numbers: a unit adds the window, and a millisecond takes the limit away.
local gcra, record = {}, modules.record()

local function at_once(c, j)
  if c.option[1] == 0 or c.limit[j] == 0 then return c.limit[j] end
  return c.option[1]
end

-- What is left of a level after a time.
local function rest(level, elapsed, limit)
  return math.max(0, level - math.max(0, elapsed) * limit)
end

-- The time until a level is gone; the whole window if it never is.
local function drain(c, j, level)
  if level == 0 then return 0 end
  if c.limit[j] == 0 then return c.window[j] end
  return math.ceil(level / c.limit[j])
end

-- How full bucket j is. What was measured in another window is converted, and cut
-- to what the bucket can hold before it leaks: a denial holds as long as it says,
-- whatever the limit was before.
local function level(c, now, j)
  local b, window = c.buckets[j], c.window[j]
  if not b then return 0 end
  local level = b.level
  if b.window ~= window then level = math.ceil(level / b.window * window) end
  return rest(math.min(level, at_once(c, j) * window), now - c.at, c.limit[j])
end

local function load(c)
  c.at, c.buckets = 0, {}
  local numbers = record.get(c)
  if not numbers then return end
  if #numbers < 3 then error('WRONGTYPE the key holds no state of gcra', 0) end
  c.at = numbers[1]
  for i = 2, #numbers, 2 do
    c.buckets[#c.buckets + 1] = {window = numbers[i], level = numbers[i + 1]}
  end
end

local function numbers(c)
  local list = {c.at}
  for _, b in ipairs(c.buckets) do
    list[#list + 1] = b.window
    list[#list + 1] = b.level
  end
  return list
end

-- Writes buckets that were brought to now. They go when the last one is empty.
local function save(c, now)
  local longest = 0
  for j, b in ipairs(c.buckets) do longest = math.max(longest, drain(c, j, b.level)) end
  record.set(c, numbers(c), now + math.max(1, longest + math.min(longest, 100)))
end

-- Brings the buckets to now, and to the policies of c.
local function refresh(c, now)
  local buckets = {}
  for j = 1, c.policies do
    buckets[j] = {window = c.window[j], level = level(c, now, j)}
  end
  c.at, c.buckets = now, buckets
end

-- Pours n units into each bucket, as far as they fit.
local function add(c, now, n)
  refresh(c, now)
  for j, b in ipairs(c.buckets) do
    local burst = at_once(c, j)
    b.level = math.min(b.level + math.min(n, burst) * b.window, burst * b.window)
  end
  save(c, now)
end

-- Sets the times until bucket j is empty, and until it has room for one unit more
-- than remains.
local function times(c, now, j)
  local level = level(c, now, j)
  c.reset[j] = drain(c, j, level)
  c.effective[j] = drain(c, j, level + (c.remaining[j] + 1 - at_once(c, j)) * c.window[j])
end

function gcra.look(c, now)
  load(c)
  local fits = true
  for j = 1, c.policies do
    local burst, window = at_once(c, j), c.window[j]
    local left = math.floor((burst * window - level(c, now, j)) / window)
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
    times(c, now, j)
  end
end

function gcra.explain(c, now, repair)
  if repair and c.at > now then
    c.at = now
    record.set(c, numbers(c))
  end
  for j = 1, c.policies do
    local burst, window = at_once(c, j), c.window[j]
    if c.allowed[j] then
      c.retry[j] = 0
    elseif c.cost > burst then
      c.retry[j] = -1
    else
      c.retry[j] = drain(c, j, level(c, now, j) + (c.cost - burst) * window)
    end
    times(c, now, j)
  end
end

function gcra.settle(c, now, at, delta)
  load(c)
  if delta > 0 then
    add(c, now, delta)
    return
  end
  if #c.buckets == 0 or at > c.at then return end -- nothing was spent then
  refresh(c, now)
  for j, b in ipairs(c.buckets) do
    local units = math.min(-delta, at_once(c, j))
    b.level = math.max(0, b.level - rest(units * b.window, now - at, c.limit[j]))
  end
  save(c, now)
end

return gcra
