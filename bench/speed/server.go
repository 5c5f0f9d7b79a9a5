package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// server is a Redis server and a connection to look into it.
type server struct {
	*redistest.Server
	client *goredis.Client
}

func newServer(process *redistest.Server) *server {
	return &server{process, newClient(process.Addr, 1)}
}

// How long a decision may take on a machine that is busy, those of others and ours. One
// that takes longer ends the run. Ours have less, for a lease has to end that long before
// the window.
const (
	patience = time.Minute
	timeout  = 3 * time.Second
)

// newClient returns a client with nothing in it that costs time and is not
// asked for.
func newClient(addr string, connections int) *goredis.Client {
	return goredis.NewClient(&goredis.Options{
		Addr:                     addr,
		PoolSize:                 connections,
		ReadTimeout:              patience,
		WriteTimeout:             patience,
		PoolTimeout:              patience,
		MaxRetries:               -1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

func (s *server) close() { _ = s.client.Close() }

// empty forgets all keys.
func (s *server) empty() error { return s.client.FlushAll(context.Background()).Err() }

// info returns the sum of numbers that INFO has.
func (s *server) info(names ...string) (float64, error) {
	all, err := s.client.InfoMap(context.Background()).Result()
	if err != nil {
		return 0, err
	}
	sum := 0.0
next:
	for _, name := range names {
		for _, section := range all {
			if text, ok := section[name]; ok {
				v, err := strconv.ParseFloat(text, 64)
				if err != nil {
					return 0, fmt.Errorf("INFO: %s: %w", name, err)
				}
				sum += v
				continue next
			}
		}
		return 0, fmt.Errorf("INFO has no %s", name)
	}
	return sum, nil
}

// cpu returns the processor time that the server has used, in µs.
func (s *server) cpu() (float64, error) {
	seconds, err := s.info("used_cpu_user", "used_cpu_sys")
	return seconds * 1e6, err
}

// commands returns how many commands the server has run, those of scripts
// included.
func (s *server) commands() (float64, error) { return s.info("total_commands_processed") }

// bytes returns the memory that the server uses for anything but connections.
func (s *server) bytes() (float64, error) {
	used, err := s.info("used_memory")
	if err != nil {
		return 0, err
	}
	clients, err := s.info("mem_clients_normal")
	return used - clients, err
}
