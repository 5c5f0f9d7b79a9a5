package inflight

// queue has groups of members, the oldest first. The first group is not empty.
type queue []*Group

// Group are members of a queue that joined it one after the other. It is closed to new members once a request waits for
// it: the request does not wait for members that join later.
type Group struct {
	n    int
	left chan struct{} // closed when this group and all older ones are empty; nil: no waiter
}

func (q *queue) join() *Group {
	if n := len(*q); n == 0 || (*q)[n-1].left != nil {
		*q = append(*q, new(Group))
	}
	last := (*q)[len(*q)-1]
	last.n++
	return last
}

func (q *queue) leave(g *Group) {
	g.n--
	for len(*q) > 0 && (*q)[0].n == 0 {
		if left := (*q)[0].left; left != nil {
			close(left)
		}
		*q = (*q)[1:]
	}
}

// left returns a channel that is closed when all members have left that there are now; nil for an empty queue.
func (q queue) left() <-chan struct{} {
	if len(q) == 0 {
		return nil
	}
	last := q[len(q)-1]
	if last.left == nil {
		last.left = make(chan struct{})
	}
	return last.left
}
