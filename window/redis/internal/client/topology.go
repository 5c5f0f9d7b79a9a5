package client

import (
	"context"
	"net"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
)

// Topology is a hook of the client of one node of a Cluster. It reads which node holds what, for the
// client fails on a node without a host, which Redis 7 and newer may answer with.
type Topology struct {
	Address  string        // of the node that is asked
	Patience time.Duration // after which the next node is asked; a connection may take longer, for what follows
}

// DialHook implements goredis.Hook.
func (Topology) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessPipelineHook implements goredis.Hook.
func (Topology) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// ProcessHook implements goredis.Hook.
func (t Topology) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		slots, ok := cmd.(*goredis.ClusterSlotsCmd)
		if !ok {
			return next(ctx, cmd)
		}
		ctx, cancel := context.WithTimeout(ctx, t.Patience)
		defer cancel()
		asked := goredis.NewSliceCmd(ctx, slots.Args()...)
		err := next(ctx, asked)
		if err == nil {
			var all []goredis.ClusterSlot
			if all, err = t.slotsOf(asked.Val()); err == nil {
				slots.SetVal(all)
			}
		}
		slots.SetErr(err)
		return err
	}
}

// slotsOf reads a reply to CLUSTER SLOTS: of each range the first and the last slot, and the nodes.
func (t Topology) slotsOf(reply []any) ([]goredis.ClusterSlot, error) {
	all := make([]goredis.ClusterSlot, 0, len(reply))
	for _, each := range reply {
		items, _ := each.([]any)
		if len(items) < 2 {
			return nil, failure.ErrReply
		}
		start, ok := items[0].(int64)
		end, both := items[1].(int64)
		if !ok || !both {
			return nil, failure.ErrReply
		}
		slot := goredis.ClusterSlot{Start: int(start), End: int(end)}
		for _, node := range items[2:] {
			n, err := t.nodeOf(node)
			if err != nil {
				return nil, err
			}
			slot.Nodes = append(slot.Nodes, n)
		}
		all = append(all, slot)
	}
	return all, nil
}

// nodeOf reads a node: its host, its port, and its ID. Without a host it is at the host that was asked.
func (t Topology) nodeOf(reply any) (node goredis.ClusterNode, err error) {
	items, _ := reply.([]any)
	if len(items) < 2 {
		return node, failure.ErrReply
	}
	port, ok := items[1].(int64)
	if !ok {
		return node, failure.ErrReply
	}
	host, known := items[0].(string)
	switch {
	case items[0] == nil || known && host == "":
		if host, _, err = net.SplitHostPort(t.Address); err != nil {
			return node, failure.ErrReply // a socket in the file system has no host
		}
	case !known:
		return node, failure.ErrReply
	case host == "?":
		return node, failure.ErrNoHostname
	}
	node.Addr = net.JoinHostPort(host, strconv.FormatInt(port, 10))
	if len(items) > 2 {
		node.ID, _ = items[2].(string)
	}
	return node, nil
}
