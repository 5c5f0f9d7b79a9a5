-- pass/zset: zset.lua for a unit of one policy.
local call, format = redis.call, string.format

-- Times as Redis reads them.
local function text(ms) return format('%d', ms) end

-- Members that are tidied up with the first that is added to a key, at most, in a call that
-- does; and with each further one. It is one call of eight.
local tidied, tidied_again = 500, 8

local tens = '17592186044416' -- 2^44, the least score of members of more than a unit

return function(limit, window, now, id, tidies)
  local at, over, expires = text(now), text(now - window), text(now + window + math.min(window, 100))
  local live = '(' .. over

  -- The time until the oldest unit leaves the window; the whole window if it is gone
  -- already, as a key is that expires at once.
  local function leaves(key)
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
    if not again then
      left = limit - call('ZCOUNT', key, live, '+inf')
      if left < limit and call('ZCOUNT', key, tens, '+inf') > 0 then return end
    end
    if left > 0 then
      spending = true
      call('ZADD', key, at, id(k))
      if tidies and not again then
        more = tidy(key, tidied)
      elseif tidies and more then
        more = tidy(key, tidied_again)
      end
      if not again then call('PEXPIREAT', key, expires) end
      left = left - 1
      if left > 0 then return left end
      return 0, window, leaves(key)
    elseif left == 0 and limit > 0 then
      local newest = tonumber(call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2] or now)
      if newest > now then return end
      local wait = leaves(key)
      return 0, window - (now - newest), wait, wait
    end
  end
end
