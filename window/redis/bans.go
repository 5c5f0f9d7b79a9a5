package redis

import (
	"context"
	"fmt"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/scripts"
)

// bansKeys names what holds the bans: their records, their changes, and when they are forgotten. They outlive the format of
// counters.
func (s *Store) bansKeys() []string {
	key := s.namings[0].LastingKey("bans")
	return []string{key, key + ":changes", key + ":ends"}
}

// ExchangeBans implements bans.Store for all stores of this prefix. An error that wraps window.ErrForeign says that
// the keys hold other data. After that error, and after one that wraps window.ErrUnknown, the writes may be made.
func (s engineStore) ExchangeBans(ctx context.Context, ask bans.Ask) (bans.Answer, error) {
	return s.exchangeBans(ctx, ask, bans.MostRecords)
}

func (s *Store) exchangeBans(ctx context.Context, ask bans.Ask, most int) (bans.Answer, error) {
	var now any = ""
	if s.now != nil {
		now = s.now()
	}
	args := make([]any, 0, 5+5*len(ask.Writes))
	args = append(args, now, ask.Known, ask.Witness, most, bans.MostChanges)
	for i := range ask.Writes {
		w := &ask.Writes[i]
		args = append(args, string(w.Op), w.Member, w.Former, w.About, numbersOf(w))
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	keys := s.bansKeys()
	reply, err := s.client.EvalSha(ctx, scripts.Bans, keys, args...).Slice()
	if err != nil {
		return bans.Answer{}, s.failShared(ctx, strings.Join(keys, " "), err)
	}
	a, err := parseBans(reply, len(ask.Writes))
	return a, s.failShared(ctx, strings.Join(keys, " "), err)
}

// numbersOf returns the numbers of a write in the order of the script.
func numbersOf(w *bans.Write) string {
	switch w.Op {
	case bans.Strike:
		r := &w.Rule
		return fmt.Sprint(w.Draw, r.Length, r.After, r.In, r.Factor, r.Max, r.Halve, r.Spread, r.Pardon)
	case bans.Set:
		return fmt.Sprint(w.For, w.Keep)
	case bans.Merge:
		return w.Record.String()
	}
	return ""
}

// errRecord is the error of a record that another program has written.
const errRecord = failure.RefusalError("WRONGTYPE not a record")

// parseBans reads the reply to some writes.
func parseBans(reply []any, writes int) (a bans.Answer, err error) {
	const head = 4
	if len(reply) < head+writes || (len(reply)-head-writes)%2 != 0 {
		return bans.Answer{}, failure.ErrReply
	}
	numbers := make([]int64, head+writes)
	for i := range numbers {
		n, ok := reply[i].(int64)
		if !ok || n < 0 || i >= 2 && n > 1 {
			return bans.Answer{}, failure.ErrReply
		}
		numbers[i] = n
	}
	a.Now, a.Change, a.More, a.Lost = numbers[0], numbers[1], numbers[2] == 1, numbers[3] == 1
	for _, done := range numbers[head:] {
		a.Done = append(a.Done, done == 1)
	}
	for pairs := reply[len(numbers):]; len(pairs) > 0; pairs = pairs[2:] {
		member, _ := pairs[0].(string)
		text, _ := pairs[1].(string)
		record, err := bans.Parse(text)
		if err != nil {
			return bans.Answer{}, errRecord
		}
		a.Changes = append(a.Changes, bans.Change{Member: member, Record: record})
	}
	return a, nil
}
