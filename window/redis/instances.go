package redis

import (
	"context"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/lua"
)

// instanceLife is how long a process counts that does not say that it is there.
const instanceLife = 15 * time.Second

var instancesSHA = sha(lua.Instances)

// Attend implements engine.Instancer. Stores of one prefix on one database count as
// those that share it.
func (s *Store) Attend(ctx context.Context) (int64, error) { return s.attend(ctx, instanceLife) }

// Leave implements engine.Instancer.
func (s *Store) Leave(ctx context.Context) error {
	_, err := s.attend(ctx, 0)
	return err
}

func (s *Store) attend(ctx context.Context, life time.Duration) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var now any = ""
	if s.now != nil {
		now = s.now()
	}
	key := s.namings[0].prefix + "{instances}" // no counter's key has braces
	n, err := s.client.EvalSha(ctx, instancesSHA, []string{key}, now, s.ids.instance, life.Milliseconds()).Int64()
	return n, s.fail(ctx, err)
}
