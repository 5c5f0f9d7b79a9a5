-- pass/zset: zset.lua for a unit of one policy. See driver.lua.
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
  local live, kept = '(' .. over, zset_windows + window
  local kept_text = text(kept)

  -- The time until the window holds a unit less; the whole window if its oldest is gone
  -- already, as a key is that expires at once.
  local function falls(key)
    local oldest = call('ZRANGEBYSCORE', key, live, zset_below_tens, 'WITHSCORES', 'LIMIT', '0', '1')[2]
    return window - (now - math.min(tonumber(oldest or now), now))
  end

  -- Removes some of what has left the window. Returns whether there may be more.
  local function tidy(key, most)
    local n = math.min(call('ZCOUNT', key, '-inf', over), most)
    if n > 0 then call('ZREMRANGEBYRANK', key, '0', n - 1) end
    return n == most
  end

  local left, newest -- before the decision
  local more -- whether there may be more to tidy up

  return function(key, k, _, _, again)
    local fresh = false
    if not again then
      local last = call('ZRANGE', key, '-2', '-1', 'WITHSCORES')
      fresh, newest = not last[1], tonumber(last[4] and last[2] or now)
      if fresh then
        left = limit
      elseif tonumber(last[#last]) ~= kept or newest >= zset_apart then
        return
      else
        left = limit - call('ZCOUNT', key, live, zset_below_tens)
      end
    end
    if left > 0 then
      spending = true
      if fresh then
        call('ZADD', key, at, id(k), kept_text, 'w')
      else
        call('ZADD', key, at, id(k))
      end
      if tidies and not again then
        more = tidy(key, zset_tidied)
      elseif tidies and more then
        more = tidy(key, tidied_again)
      end
      if not again then call('PEXPIREAT', key, expires) end
      left, newest = left - 1, math.max(newest, now) -- units can lie in the future
      if left > 0 then return left end
      return 0, window, falls(key)
    elseif left == 0 and limit > 0 then
      if newest > now then return end
      local wait = falls(key)
      return 0, window - (now - newest), wait, wait
    end
  end
end
