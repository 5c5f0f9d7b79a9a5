-- verdict: look, spend and explain of every algorithm that counts the units of a window.
--
-- verdict(read, count, falls, newest, add) -> look, spend, explain
--         with the meaning of window.Algorithm, from functions of an algorithm:
--   read(c, now)
--         Reads the counter of a charge.
--   count(c, now, j) -> units
--         what the window of policy j holds
--   falls(c, now, j, n) -> ms
--         the time until the window of policy j holds at most n units, 0 or more. It holds
--         limit[j] - remaining[j], which is more.
--   newest(c, now, repair) -> ms
--         the time of the newest unit, if there is one. With repair, units that lie in the
--         future are moved to now before.
--   add(c, now, n)
--         Adds n units at now, and forgets those that are not read any more.
local max, min = math.max, math.min

return function(read, count, falls, newest, add)
  local function look(c, now)
    read(c, now)
    local fits, cost = true, c.cost
    for j = 1, c.policies do
      local left = c.limit[j] - count(c, now, j)
      local allowed = cost == 0 or cost <= left
      c.allowed[j], c.remaining[j] = allowed, left
      fits = fits and allowed
    end
    return fits
  end

  local function spend(c, now)
    local cost = c.cost
    add(c, now, cost)
    for j = 1, c.policies do
      local left, window = c.remaining[j] - cost, c.window[j]
      c.remaining[j], c.retry[j], c.reset[j], c.effective[j] = left, 0, window, window
      if left == 0 then c.effective[j] = falls(c, now, j, c.limit[j] - 1) end
    end
  end

  local function explain(c, now, repair)
    local latest = newest(c, now, repair)
    for j = 1, c.policies do
      local limit, window, left = c.limit[j], c.window[j], c.remaining[j]
      if c.allowed[j] then
        c.retry[j] = 0
      elseif c.cost > limit then
        c.retry[j] = -1
      else
        c.retry[j] = falls(c, now, j, limit - c.cost)
      end
      c.reset[j], c.effective[j] = 0, window
      if left < limit then
        c.reset[j] = window - (now - min(latest, now))
        if limit > 0 then c.effective[j] = falls(c, now, j, min(limit - left, limit) - 1) end
      end
      c.remaining[j] = max(0, left)
    end
  end

  return look, spend, explain
end
