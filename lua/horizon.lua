-- horizon: how far back a counter is still looked at. Twin of window/horizon.go, which
-- has the reasons.
--
-- after(c, now, window, till, newest) -> window, till
--         c       a charge under a longest window of c.longest ms, made at now
--         window  ms for which the counter's units were kept so far; nil or 0: it has none
--         till    up to when that window is needed, in ms; nil or 0: until one window after
--                 the newest unit
--         newest  a function that returns the time of the newest unit, or nil
--         -> what to store from now on. till is 0 unless other charges need a longer window
-- renewed(c, now, window, till) -> ms
--         when the key expires, as text, if its units are as good as spent at now
--
-- A charge holds here, too:
--   keep         ms for which units are kept
--   expires      the time in ms at which the key expires, as text
--   own_expires  expires, where no other charge needs a longer window
local floor, max, min = math.floor, math.max, math.min

-- Whole numbers above 10^14 lose digits in Lua's own formatting.
local function text(n) return string.format('%d', n) end

-- The key lives for a while longer than any unit counts: it must never expire earlier.
local function expires(till, now) return text(till + min(till - now, grace)) end

local function after(c, now, window, till, newest)
  local own = c.longest
  c.keep = own
  local latest = window and window > own and newest()
  if latest then
    if till == 0 then till = min(latest, now) + window end
    till = min(till, now + window) -- a clock can step back
    while till <= now and window > own do
      window = floor(window / 4)
      till = till + window
    end
    if window > own then
      if own >= floor(window / 4) then till = max(till, now + own) end
      c.keep, c.expires = window, expires(max(till, now + own), now)
      return window, till
    end
  end
  c.own_expires = c.own_expires or expires(now + own, now)
  c.expires = c.own_expires
  return own, 0
end

local function renewed(c, now, window, till)
  if not window or window <= c.longest then return expires(now + c.longest, now) end
  if till == 0 then till = now + window end
  return expires(max(min(till, now + window), now + c.longest), now)
end

return {after = after, renewed = renewed}
