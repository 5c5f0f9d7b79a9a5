-- pass/zset: zset.lua for a unit of one policy, where no other window holds and all members are of
-- one unit, as the name of the horizon's member says. See driver.lua.
--
-- A unit is written with that member: what ZADD answers tells whether it was there, and a look before
-- would take a sixth of the decision. If it was not, both are removed. Scores are not read before a
-- denial: Redis takes as long to write one as to run a command.
--
-- make(limit, window, now, id, tidies) -> decide
local call, format = redis.call, string.format

-- Members that are tidied up with a further one that is added to a key, at most, in a call that
-- does: one call of eight. With the first, it is zset_tidied.
local tidied_again = 8

return function(limit, window, now, id, tidies)
  -- Times as Redis reads them.
  local at, over, expires = format('%d', now), format('%d', now - window), format('%d', now + window + math.min(window, grace))
  local live, name, kept = '(' .. over, format('w%d', window), format('%d', zset_windows + window)

  local left -- before the decision
  local more -- whether there may be more to tidy up

  return function(key, k, _, _, again)
    local count
    if not again then
      count = call('ZCOUNT', key, live, '+inf') -- with that member
      left = count > 0 and limit + 1 - count or limit
      more = count > 0
    end
    local newest
    if left > 0 then
      spending = true
      if again then
        call('ZADD', key, at, id(k))
      elseif call('ZADD', key, at, id(k), kept, name) > 1 and count > 0 then
        call('ZREM', key, id(k), name)
        spending = false
        return
      else
        call('PEXPIREAT', key, expires)
      end
      if tidies and more then
        local most = again and tidied_again or zset_tidied
        local n = math.min(call('ZCOUNT', key, '-inf', over), most)
        if n > 0 then call('ZREMRANGEBYRANK', key, '0', n - 1) end
        more = n == most
      end
      left = left - 1
      if left > 0 then return left end
    elseif left == 0 and limit > 0 then
      if call('ZRANGE', key, '-1', '-1')[1] ~= name then return end
      newest = tonumber(call('ZRANGE', key, '-2', '-2', 'WITHSCORES')[2] or now)
      if newest > now then return end -- units can lie in the future
    else
      return
    end
    -- The time until the window holds a unit less; the whole window if its oldest is gone
    -- already, as a key is that expires at once.
    local oldest = call('ZRANGEBYSCORE', key, live, '+inf', 'WITHSCORES', 'LIMIT', '0', '1')[2]
    local wait = window - (now - math.min(tonumber(oldest or now), now))
    if newest then return 0, window - (now - newest), wait, wait end
    return 0, window, wait
  end
end
