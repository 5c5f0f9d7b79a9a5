package redis

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/scripts"
)

// enforceKey names the hash that holds the last order for each zone.
func (s *Store) enforceKey() string {
	return s.namings[0].LastingKey("enforce")
}

// ExchangeOrders writes next, orders by the names of zones. It leaves out a zone whose order in the store is not the one
// in known, where an empty text and none mean no order. All orders are kept as long as the newest. ExchangeOrders returns
// the orders that the store has then, and the time of the server that has them.
func (s engineStore) ExchangeOrders(ctx context.Context, known, next map[string]string, keep time.Duration) (now time.Time, orders map[string]string, err error) {
	args := make([]any, 0, 1+3*len(next))
	args = append(args, keep.Milliseconds())
	for zone, order := range next {
		args = append(args, zone, known[zone], order)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	reply, err := s.client.EvalSha(ctx, scripts.Enforce, []string{s.enforceKey()}, args...).Slice()
	if err != nil {
		return now, nil, s.failShared(ctx, s.enforceKey(), err)
	}
	now, orders, ok := parseOrders(reply)
	if !ok {
		return now, nil, s.words.Fail(ctx, errOrders)
	}
	return now, orders, nil
}

var errOrders = errors.New("the reply is not that of the script for orders")

func parseOrders(reply []any) (now time.Time, orders map[string]string, ok bool) {
	if len(reply) != 3 {
		return now, nil, false
	}
	sec, _ := reply[0].(string)
	usec, _ := reply[1].(string)
	all, ok := reply[2].([]any)
	s, err := strconv.ParseInt(sec, 10, 64)
	if err != nil || !ok || len(all)%2 != 0 {
		return now, nil, false
	}
	us, err := strconv.ParseInt(usec, 10, 64)
	if err != nil {
		return now, nil, false
	}
	orders = make(map[string]string, len(all)/2)
	for i := 0; i < len(all); i += 2 {
		zone, _ := all[i].(string)
		orders[zone], _ = all[i+1].(string)
	}
	return time.Unix(s, us*1000), orders, true
}
