-- stream: the exact sliding-window log, readable. Twin of window/stream.go.
--
-- Key     a stream: an entry per request, with the id <ms>-<n> and the fields
--           cost    units of the request
--           total   running total of units, with this entry
--           gone    total of those that nobody looked at any more by then
--           window  the horizon (see horizon.lua): "<window>" or, unless till is 0,
--                   "<window>:<till>"
--           ...     the charge's fields
-- Options how long entries are kept, in ms, if longer than the longest window
--
-- Running totals make the count of any window the difference of two entries. What
-- is gone is noted, because it may be kept, and counts no more. The note goes with
-- its entry: if the newest is given back, a window that is raised before the next
-- request is admitted may see again what is kept.
local stream, horizon = {fields = true}, module('horizon')
local own = 8 -- words of an entry before the charge's fields

local unpack = table.unpack or unpack -- the name depends on the version of Lua

local function parse(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

local function read(entry)
  local ms, seq = parse(entry[1])
  local fields = entry[2]
  return {ms = ms, seq = seq, cost = tonumber(fields[2]), total = tonumber(fields[4]), gone = tonumber(fields[6]), keeps = fields[8]}
end

-- The last entry up to the end of a millisecond, or nil.
local function last(c, ms)
  local entry = redis.call('XREVRANGE', c.key, ms, '-', 'COUNT', 1)[1]
  return entry and read(entry)
end

local function newest(c)
  return last(c, '+') or {ms = -math.huge, total = 0, gone = 0} -- before any window
end

-- Returns the horizon's window and till, as an entry has them.
local function keeps(entry)
  local window, till = string.match(entry.keeps or '0', '^(%d+):?(%d*)$')
  return tonumber(window), tonumber(till) or 0
end

-- The key lives as long as the horizon says, or for as long as entries are kept. Its
-- expiry must never be earlier than the ids say.
local function expire(c)
  local kept = c.now + c.option[1]
  kept = kept + math.min(c.option[1], 100)
  local expires = horizon.renewed(c, c.now, keeps(c.newest))
  if tonumber(expires) < kept then expires = string.format('%d', kept) end
  redis.call('PEXPIREAT', c.key, expires)
end

-- Writes an entry after the newest.
local function write(c, ms, seq, fields)
  redis.call('XADD', c.key, ms .. '-' .. seq, unpack(fields))
  c.newest = {ms = ms, seq = seq, total = tonumber(fields[4]), gone = tonumber(fields[6]), keeps = fields[8]}
end

local function next_seq(c, ms)
  return c.newest.ms == ms and c.newest.seq + 1 or 0
end

-- Writes all entries anew, as change(fields, ms, id) leaves them: it returns their
-- millisecond, or nil to drop them. Redis takes no id below one that it has
-- given, not even if that is deleted, and since 7.2 XSETID is no way around it.
local function rewrite(c, change)
  local entries = redis.call('XRANGE', c.key, '-', '+')
  redis.call('DEL', c.key) -- first: after it, want of memory stops nothing
  c.newest = newest(c)
  for _, entry in ipairs(entries) do
    local fields, ms = entry[2], parse(entry[1])
    ms = change(fields, ms, entry[1])
    if ms then write(c, ms, next_seq(c, ms), fields) end
  end
  expire(c)
end

-- The last id that was given, be its entry deleted or not.
local function last_given(c)
  local info = redis.call('XINFO', 'STREAM', c.key)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then return parse(info[i + 1]) end
  end
end

-- Adds an entry after the newest. When the newest was given back, its id is not
-- to be had again.
local function append(c, ms, fields)
  if pcall(write, c, ms, next_seq(c, ms), fields) then return end
  local seq = next_seq(c, ms)
  if c.newest.ms >= 0 then
    local given, given_seq = last_given(c)
    if given == ms then
      seq = given_seq + 1
    elseif given > ms then
      rewrite(c, function(_, same) return same end)
      seq = next_seq(c, ms)
    end
  end
  write(c, ms, seq, fields)
end

-- Moves everything that lies in the future to now.
local function pull_back(c, now)
  if c.newest.ms > now then
    rewrite(c, function(_, ms) return math.min(ms, now) end)
  end
end

-- Lowers running totals, so that they stay exact in doubles.
local function rebase(c, by)
  rewrite(c, function(fields, ms)
    fields[4], fields[6] = math.max(0, fields[4] - by), math.max(0, fields[6] - by)
    return ms
  end)
  for j = 1, c.policies do
    c.base[j] = c.base[j] - by
    if c.first[j] then c.first[j].total = c.first[j].total - by end
  end
end

-- The time until the k-th oldest unit of policy j leaves its window; the whole
-- window if there is no such unit.
local function leaves(c, now, j, k)
  local window, unit, first = c.window[j], c.base[j] + k, c.first[j]
  if not first or unit > c.newest.total then return window end
  if unit <= first.total then return window - (now - math.min(first.ms, now)) end
  local from, to = math.min(first.ms, c.newest.ms), c.newest.ms
  while from < to do
    local middle = math.floor((from + to) / 2)
    local entry = last(c, middle)
    if entry and entry.total >= unit then
      to = entry.ms
      if entry.total - entry.cost < unit then break end
    else
      from = middle + 1
    end
  end
  return window - (now - math.min(to, now))
end

-- The first entry after an edge, or nil, and the running total before it.
local function base(c, edge)
  local first
  if c.newest.ms > edge then
    first = read(redis.call('XRANGE', c.key, math.max(0, edge + 1), '+', 'COUNT', 1)[1])
  end
  return first and math.max(first.total - first.cost, c.newest.gone) or c.newest.total, first
end

-- Adds an entry of n units now. c has been looked at.
local function add(c, now, n)
  pull_back(c, now)
  local kept, till = keeps(c.newest)
  local window, next_till = horizon.after(c, now, kept, till, function() return c.newest.ms >= 0 and c.newest.ms end)
  local gone = math.min(unpack(c.base)) -- that of the longest window
  if c.keep > c.looks then gone = math.min(gone, (base(c, now - c.keep))) end
  if c.newest.total > 2 ^ 53 - n then
    rebase(c, gone)
    gone = 0
  end
  local says = string.format(next_till > 0 and '%d:%d' or '%d', window, next_till)
  append(c, now, {'cost', n, 'total', c.newest.total + n, 'gone', gone, 'window', says, unpack(c.fields)})
  redis.call('XTRIM', c.key, 'MINID', '=', math.max(0, now - math.max(c.keep, c.option[1]) + 1))
  expire(c)
end

function stream.look(c, now)
  c.now, c.newest, c.base, c.first, c.looks = now, newest(c), {}, {}, 0
  local fits = true
  for j = 1, c.policies do
    c.base[j], c.first[j] = base(c, now - c.window[j])
    c.looks = math.max(c.looks, c.window[j])
    local left = c.limit[j] - (c.newest.total - c.base[j])
    c.allowed[j] = c.cost == 0 or c.cost <= left
    c.remaining[j] = left
    fits = fits and c.allowed[j]
  end
  return fits
end

function stream.spend(c, now)
  add(c, now, c.cost)
  for j = 1, c.policies do
    c.remaining[j] = c.remaining[j] - c.cost
    c.retry[j], c.reset[j], c.effective[j] = 0, c.window[j], c.window[j]
    if c.remaining[j] == 0 then
      c.effective[j] = leaves(c, now, j, 1)
    end
  end
end

function stream.explain(c, now, repair)
  if repair then pull_back(c, now) end
  for j = 1, c.policies do
    local count = c.limit[j] - c.remaining[j]
    if c.allowed[j] then
      c.retry[j] = 0
    elseif c.cost > c.limit[j] then
      c.retry[j] = -1
    else
      c.retry[j] = leaves(c, now, j, c.cost - c.remaining[j])
    end
    c.reset[j] = 0
    if count > 0 then
      c.reset[j] = c.window[j] - (now - math.min(c.newest.ms, now))
    end
    c.effective[j] = leaves(c, now, j, math.max(1, 1 - c.remaining[j]))
    c.remaining[j] = math.max(0, c.remaining[j])
  end
end

-- Whether an entry holds the charge's fields, and no others.
local function is_alike(c, fields)
  if #fields ~= own + #c.fields then return false end
  for i, word in ipairs(c.fields) do
    if fields[own + i] ~= word then return false end
  end
  return true
end

-- Takes up to n units from those entries that are not gone: the latest first, but
-- before them the latest that are like the charge, for it was one of these. Returns
-- how many to take by id, and the index of the first such entry.
local function choose(c, entries, n)
  local chosen, first = {}, nil
  for _, alike in ipairs({true, false}) do
    for i = #entries, 1, -1 do
      local id, fields = entries[i][1], entries[i][2]
      if n > 0 and tonumber(fields[4]) > c.newest.gone and is_alike(c, fields) == alike then
        chosen[id] = math.min(n, tonumber(fields[2]))
        n = n - chosen[id]
        first = math.min(first or i, i)
      end
    end
  end
  return chosen, first
end

-- Returns a function that corrects the fields of one entry after the other by the
-- units that are given back, and returns whether any are left in it.
local function corrector(chosen)
  local back = 0
  return function(fields, id)
    local n = chosen[id] or 0
    back = back + n
    fields[2], fields[4] = fields[2] - n, fields[4] - back
    return fields[2] > 0
  end
end

function stream.settle(c, now, at, delta)
  if delta > 0 then
    stream.look(c, now)
    add(c, now, delta)
    return
  end
  c.now, c.newest = now, newest(c)
  if at < 0 or at > c.newest.ms then return end
  local entries = redis.call('XRANGE', c.key, at, at)
  local chosen, first = choose(c, entries, -delta)
  if not first then return end
  local correct = corrector(chosen)
  if at < c.newest.ms then
    rewrite(c, function(fields, ms, id) return correct(fields, id) and ms end)
    return
  end
  -- Nothing is later, so that what is left can get new ids.
  for i = first, #entries do
    if correct(entries[i][2], entries[i][1]) then append(c, at, entries[i][2]) end
  end
  for i = first, #entries do redis.call('XDEL', c.key, entries[i][1]) end
  if newest(c).ms < 0 then redis.call('DEL', c.key) end
end

return stream
