-- streamentries: reads and writes the entries of stream.lua.
--
-- Entry   in Redis, the id <ms>-<n> and the fields
--           cost    units of the request
--           total   running total of units, with this entry: the number of its last unit
--           gone    total of those that were not read any more by then; the horizon
--                   (see horizon.lua), <window> or, unless till is 0, <window>:<till>; and,
--                   once units were given back, the id of the entry that says which
--           ...     the charge's fields
--         To give units of it back, an entry is deleted, or gets another cost; and those
--         behind it, if there are few, other totals. If there are many, they stay as they
--         are, and entries of cost 0 come behind them:
--           back, of   units that were given back, and the id of their entry
--           index      see streamback.lua; the newest unit's ms follows the id in gone
--         An entry with nothing but cost 0 keeps the field gone of one that is deleted.
--         Here, a table of last_ms and seq, which are its id; ms, the time of the newest unit:
--         last_ms unless gone says another; cost, total, gone, window, till; and root, the id
--         of the entry that says which units were given back, or nil.
--
-- read(sent) -> entry       that Redis has sent
-- nothing() -> entry        before any window, without units
-- last(c, ms) -> entry      the last one up to the end of a millisecond, or nil
-- write(c, ms, fields)
--         Writes an entry after the last.
-- note(entry) -> text       of its field gone, without the id
-- expires(c) -> ms          when the key expires, as text
-- expire(c)
--         Has it expire then.
-- check_ids(c)
--         Changes nothing: fails if the last id cannot be set, while all entries are there.
-- reopen(c, id) -> whether it could
--         Makes an id the last one, with no entry behind it.
-- text(n), id_of(ms, seq), parse(id) -> ms, seq
--
-- c.own holds
--   newest  the newest entry
--   now     the time of the charge
local horizon = module('horizon')
local unpack = table.unpack or unpack -- the name depends on the version of Lua
local call, max, min = redis.call, math.max, math.min

local function parse(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

-- Whole numbers above 10^14 lose digits in Lua's own formatting.
local function text(n) return string.format('%d', n) end

local function id_of(ms, seq) return text(ms) .. '-' .. text(seq) end

local function read(entry)
  local ms, seq = parse(entry[1])
  local fields = entry[2]
  local gone, window, till, root, newest = string.match(fields[6], '^(%d+) (%d+):?(%d*) ?(%S*) ?(%d*)$')
  return {
    last_ms = ms, ms = tonumber(newest) or ms, seq = seq, root = root ~= '' and root ~= '-' and root or nil,
    cost = tonumber(fields[2]), total = tonumber(fields[4]), gone = tonumber(gone),
    window = tonumber(window), till = tonumber(till) or 0,
  }
end

local function note(n)
  if n.till > 0 then return string.format('%d %d:%d', n.gone, n.window, n.till) end
  return string.format('%d %d', n.gone, n.window)
end

local function nothing() return {ms = -math.huge, last_ms = -math.huge, total = 0, gone = 0, window = 0, till = 0} end

local function last(c, ms)
  local entry = call('XREVRANGE', c.key, ms, '-', 'COUNT', 1)[1]
  return entry and read(entry)
end

-- Never earlier than the ids say.
local function expires(c)
  local kept = c.own.now + c.option[1] + min(c.option[1], grace)
  return text(max(kept, tonumber(horizon.renewed(c, c.own.now, c.own.newest.window, c.own.newest.till))))
end

local function expire(c) call('PEXPIREAT', c.key, expires(c)) end

local function write(c, ms, fields)
  local n = c.own.newest
  local seq = n.last_ms == ms and n.seq + 1 or 0
  call('XADD', c.key, id_of(ms, seq), unpack(fields))
  n.last_ms, n.seq = ms, seq
end

local function check_ids(c)
  call('XSETID', c.key, id_of(c.own.newest.last_ms, c.own.newest.seq))
end

-- Ids can only grow, but for those that the stream has forgotten: since Redis 7.2, they have to be
-- above the largest that was deleted, unless that is set.
local function reopen(c, id)
  pcall(call, 'XSETID', c.key, id_of(c.own.newest.last_ms, c.own.newest.seq), 'MAXDELETEDID', '0-1')
  return pcall(call, 'XSETID', c.key, id)
end

return {
  text = text, parse = parse, id_of = id_of, read = read, note = note, nothing = nothing, last = last,
  write = write, expires = expires, expire = expire, check_ids = check_ids, reopen = reopen,
}
