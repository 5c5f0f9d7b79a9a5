package accesslog

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	chunkSize = 256 << 10
	maxLine   = 16 << 20 // a longer line is refused
	queue     = 4        // chunks of a file that are read ahead
)

// source is a file that is read.
type source struct {
	name   string
	reader *Reader
	start  int64 // the time of its first request; 0: unknown

	chunks chan *chunk
	now    *chunk
	at     int   // of the next line in now
	before int64 // lines of the file before now
	last   int64 // the end of the request before
}

// open returns the file, decompressed.
func (s *source) open(count bool) (io.Reader, func(), error) {
	var file io.Reader
	done := func() {}
	if s.name == "-" {
		if file = s.reader.options.Stdin; file == nil {
			return nil, nil, errors.New("-: there is no standard input")
		}
	} else {
		f, err := os.Open(s.name)
		if err != nil {
			return nil, nil, err
		}
		file, done = f, func() { _ = f.Close() }
	}
	if count {
		file = &counted{Reader: file, reader: s.reader}
	}
	in := bufio.NewReaderSize(file, 64<<10)
	magic, _ := in.Peek(4)
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(in)
		if err != nil {
			done()
			return nil, nil, fmt.Errorf("%s: %w", s.name, err)
		}
		return z, done, nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1))
		if err != nil {
			done()
			return nil, nil, fmt.Errorf("%s: %w", s.name, err)
		}
		return z, func() { z.Close(); done() }, nil
	case bytes.HasPrefix(magic, []byte{0xff, 0xfe}), bytes.HasPrefix(magic, []byte{0xfe, 0xff}):
		done()
		return nil, nil, fmt.Errorf("%s: it is in UTF-16; convert it: iconv -f UTF-16 -t UTF-8 %s", s.name, s.name)
	case bytes.HasPrefix(magic, []byte{0xef, 0xbb, 0xbf}):
		_, _ = in.Discard(3)
	}
	return in, done, nil
}

// counted counts what is read of a file.
type counted struct {
	io.Reader
	reader *Reader
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.reader.read.Add(int64(n))
	return n, err
}

// peek finds the time of the file's first request, and its size.
func (s *source) peek() error {
	if s.name == "-" {
		return nil
	}
	in, done, err := s.open(false)
	if err != nil {
		return err
	}
	defer done()
	info, err := os.Stat(s.name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%s: it is a directory; give files", s.name)
	}
	s.reader.total += info.Size()
	b := make([]byte, 64<<10)
	n, _ := fill(in, b)
	p := parser{unit: time.Second}
	for line := range strings.SplitSeq(string(b[:n]), "\n") {
		var l Line
		if line = trim(line); line == "" {
			continue
		}
		if res, _ := p.parse(&l, line); res == request {
			s.start = l.End
			return nil
		}
	}
	return nil
}

// read sends the file's chunks to s.chunks in their order, and to work.
func (s *source) read(ctx context.Context, work chan<- *chunk) {
	defer close(s.chunks)
	send := func(c *chunk) bool {
		c.name, c.parsed = s.name, make(chan struct{})
		select {
		case s.chunks <- c:
		case <-ctx.Done():
			return false
		}
		if c.err != nil {
			return false
		}
		select {
		case work <- c:
			return true
		case <-ctx.Done():
			return false
		}
	}
	in, done, err := s.open(true)
	if err != nil {
		send(&chunk{err: err})
		return
	}
	defer done()
	var unit time.Duration
	buf := make([]byte, chunkSize)
	for kept := 0; ; {
		n, err := fill(in, buf[kept:])
		text := buf[:kept+n]
		ends, early := err != nil, errors.Is(err, io.ErrUnexpectedEOF)
		if ends && !early && !errors.Is(err, io.EOF) {
			send(&chunk{err: fmt.Errorf("%s: %w", s.name, err)})
			return
		}
		cut := len(text)
		if !ends {
			cut = bytes.LastIndexByte(text, '\n') + 1
		}
		if cut > 0 || early {
			c := &chunk{text: string(text[:cut]), unended: ends, cut: early}
			if unit == 0 {
				unit = unitOf(c.text)
			}
			c.unit = unit
			if !send(c) {
				return
			}
		}
		if ends {
			return
		}
		kept = copy(buf, text[cut:])
		if kept == len(buf) {
			if kept >= maxLine {
				send(&chunk{err: errLong})
				return
			}
			buf = append(buf, make([]byte, len(buf))...)
		}
	}
}

// fill reads until b is full or in fails.
func fill(in io.Reader, b []byte) (int, error) {
	n := 0
	for n < len(b) {
		m, err := in.Read(b[n:])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// errLong is the error of a line above maxLine.
var errLong = fmt.Errorf("the line is longer than %d MiB; it is no access log", maxLine>>20)
