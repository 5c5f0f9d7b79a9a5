-- pass/zset: zset.lua for a unit of one policy, where no other window holds and all members are of
-- one unit, as the name of the newest says. Scores are not read before a denial: Redis takes as long
-- to write one as to run a command. See driver.lua.
--
-- make(limit, window, now, id, tidies) -> decide
local call, format = redis.call, string.format

-- Times as Redis reads them.
local function text(ms) return format('%d', ms) end

-- Members that are tidied up with a further one that is added to a key, at most, in a call that
-- does: one call of eight. With the first, it is zset_tidied.
local tidied_again = 8

return function(limit, window, now, id, tidies)
  local at, over, expires = text(now), text(now - window), text(now + window + math.min(window, grace))
  local live, name, kept = '(' .. over, 'w' .. text(window)

  -- The time until the window holds a unit less; the whole window if its oldest is gone
  -- already, as a key is that expires at once.
  local function falls(key)
    local oldest = call('ZRANGEBYSCORE', key, live, '+inf', 'WITHSCORES', 'LIMIT', '0', '1')[2]
    return window - (now - math.min(tonumber(oldest or now), now))
  end

  -- Removes some of what has left the window. Returns whether there may be more.
  local function tidy(key, most)
    local n = math.min(call('ZCOUNT', key, '-inf', over), most)
    if n > 0 then call('ZREMRANGEBYRANK', key, '0', n - 1) end
    return n == most
  end

  local left -- before the decision
  local more -- whether there may be more to tidy up

  return function(key, k, _, _, again)
    local fresh = false
    if not again then
      local last = call('ZRANGE', key, '-1', '-1')[1]
      if last == name then
        left = limit + 1 - call('ZCOUNT', key, live, '+inf') -- which counts that member, too
      elseif last then
        return
      else
        fresh, left = true, limit
      end
    end
    if left > 0 then
      spending = true
      if fresh then
        kept = kept or text(zset_windows + window)
        call('ZADD', key, at, id(k), kept, name)
      else
        call('ZADD', key, at, id(k))
      end
      if tidies and not again then
        more = tidy(key, zset_tidied)
      elseif tidies and more then
        more = tidy(key, tidied_again)
      end
      if not again then call('PEXPIREAT', key, expires) end
      left = left - 1
      if left > 0 then return left end
      return 0, window, falls(key)
    elseif left == 0 and limit > 0 then
      local newest = tonumber(call('ZRANGE', key, '-2', '-2', 'WITHSCORES')[2] or now)
      if newest > now then return end -- units can lie in the future
      local wait = falls(key)
      return 0, window - (now - newest), wait, wait
    end
  end
end
