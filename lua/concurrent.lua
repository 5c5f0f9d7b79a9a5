-- concurrent: units that are held at the same time. Twin of window/concurrent.go.
--
-- Key     a hash with a field for each process: in MessagePack, one after the other, the number of the last message
--         that was counted, the number of the last total that was exact, the units that the process was ever given,
--         those that it has given back, when it was heard of in ms, its lease in ms, and since when it holds any in ms
-- Options the name of the process
--
-- A process holds what it was given less what it has given back. Both sums only grow between two totals that are exact, so that the larger of two is
-- the newer: a message that comes twice or late changes nothing, and one that is lost is made good by the next. Messages are
-- numbered, and have the sums as the process knows them. take adds units to the first sum. The process may not have
-- heard of some of these yet: settle, which tells a total, leaves the larger sum, unless no take is on its way, and the
-- total is exact. It then replaces the sum, and messages with a lower number say nothing any more: the process has given up
-- their takes, which are denied, and may have lowered its sum.
--
-- c.own holds
--   counted, exact, given, back, at, lease, since   what the field of the process has; counted is nil without a field
--   had         there was a field
--   others      units of the other processes
--   expires     when the last of them is to be forgotten, in ms
--   silent      names and units of processes that were silent for a lease, or nil
--   ahead       names and values of fields that are in the future, or nil: a clock has stepped back
local call, max = redis.call, math.max
local pack, read_all = cmsgpack.pack, cmsgpack.unpack

local function read(c, now)
  local own = c.own or {others = 0, expires = 0, given = 0, back = 0, since = 0, exact = 0, counted = nil, had = nil, silent = nil, ahead = nil}
  c.own, own.others, own.expires, own.given, own.back, own.since = own, 0, 0, c.given, c.back, now
  own.exact, own.counted, own.had, own.silent, own.ahead = 0, nil, nil, nil, nil
  local all = call('HGETALL', c.key)
  for i = 1, #all, 2 do
    local counted, exact, given, back, at, lease, since = read_all(all[i + 1])
    if not since then error('WRONGTYPE the key holds no state of concurrent', 0) end
    if at > now then
      at, own.ahead = now, own.ahead or {}
      own.ahead[#own.ahead + 1] = all[i]
      own.ahead[#own.ahead + 1] = pack(counted, exact, given, back, now, lease, since)
    end
    if at + lease <= now then
      if all[i] ~= c.option[1] then
        own.silent = own.silent or {}
        own.silent[#own.silent + 1] = all[i]
        own.silent[#own.silent + 1] = given - back
      end
    elseif all[i] == c.option[1] then
      own.counted, own.exact, own.since, own.had = counted, exact, since, true
      own.given, own.back = given, back
      if c.number > exact then own.given, own.back = max(given, c.given), max(back, c.back) end
    else
      own.others = own.others + given - back
      own.expires = max(own.expires, at + lease)
    end
  end
end

-- Writes what the process holds. The key is forgotten a lease after the last process was silent for its own, so that another
-- one finds what was held. A process that holds nothing any more needs it for no longer than before.
local function write(c, now)
  local own, lease = c.own, c.window[1]
  call('HSET', c.key, c.option[1], pack(own.counted, own.exact, own.given, own.back, now, lease, own.since))
  if own.had and own.given == own.back then return end
  call('PEXPIREAT', c.key, string.format('%d', max(own.expires, now + lease) + lease))
end

local function look(c, now)
  read(c, now)
  local own, fits = c.own, true
  local given_up = own.counted and c.number < own.exact
  for j = 1, c.policies do
    local left = c.limit[j] - own.others - own.given + own.back
    local allowed = c.cost == 0 or c.cost <= left and not given_up
    c.allowed[j], c.remaining[j] = allowed, left
    fits = fits and allowed
  end
  return fits
end

local function spend(c, now)
  local own = c.own
  for j = 1, c.policies do
    c.remaining[j], c.retry[j], c.reset[j], c.effective[j] = c.remaining[j] - c.cost, 0, 0, 0
  end
  if own.given == own.back then own.since = now end
  own.counted, own.given = max(own.counted or 0, c.number), own.given + c.cost
  write(c, now)
end

local function explain(c, _now)
  for j = 1, c.policies do
    c.retry[j], c.reset[j], c.effective[j] = 0, 0, 0
    if not c.allowed[j] and c.cost > c.limit[j] then c.retry[j] = -1 end
    c.remaining[j] = max(0, c.remaining[j])
  end
end

-- Tells a total, of a process that has held units for an age in ms, and has heard that a number was counted. It is exact
-- unless the age is negative. Returns -4 if it is exact, and a later message was counted before: the total does not know of
-- that one. Else returns twice the units of silent processes, which are free now, and one more if what the process had
-- heard of was lost.
local function settle(c, now, age, heard)
  read(c, now)
  local own, free = c.own, 0
  local before = own.counted or 0
  own.counted = max(before, c.number)
  if age < 0 then
    age = -1 - age
  elseif before > c.number then
    write(c, now)
    return -4
  else
    own.exact, own.given, own.back = c.number, c.given, c.back
  end
  own.since = now - age
  for i = 1, own.silent and #own.silent or 0, 2 do
    free = free + own.silent[i + 1]
    call('HDEL', c.key, own.silent[i])
  end
  for i = 1, own.ahead and #own.ahead or 0, 2 do call('HSET', c.key, own.ahead[i], own.ahead[i + 1]) end
  write(c, now)
  return 2 * free + (heard > before and 1 or 0)
end

return {holds = true, look = look, spend = spend, explain = explain, settle = settle}
