package usage

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// maxDecoded is how much of a compressed answer is read, decoded: a limit of the time
// that an answer of zeroes can take.
const maxDecoded = 1 << 30

// maxWindow is the window that a zstd answer may need: what RFC 9659 lets HTTP have.
const maxWindow = 8 << 20

var errTooLong = errors.New("the decoded answer is too long")

// decoder decodes one answer, and is reused for others. The gzip.Reader is that of the
// standard library: a reused one of klauspost/compress 1.20.1 may accept a broken stream
// that a new one refuses.
type decoder struct {
	in   *bufio.Reader
	gzip *gzip.Reader
	zstd *zstd.Decoder
	out  []byte
}

// decoders are idle decoders, by coding.
var decoders = map[string]*sync.Pool{
	"gzip": {New: func() any { return newDecoder(&decoder{gzip: new(gzip.Reader)}) }},
	"zstd": {New: func() any {
		// With a concurrency of 1, a decoder has no goroutines. No option is wrong.
		z, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		return newDecoder(&decoder{zstd: z})
	}},
}

func newDecoder(d *decoder) *decoder {
	d.in, d.out = bufio.NewReaderSize(nil, 32<<10), make([]byte, 32<<10)
	return d
}

// coding returns the name of the coding in a Content-Encoding field, in lower case.
func coding(field string) string {
	name := strings.ToLower(strings.TrimSpace(field))
	switch name {
	case "identity":
		return ""
	case "x-gzip":
		return "gzip"
	}
	return name
}

// decode reads r, which is compressed, and calls write for each piece that is decoded. It
// returns nil at the end of r, or why it stopped before: errTooLong after limit bytes,
// io.ErrUnexpectedEOF if r ends too early, or an error of the coding.
func decode(r io.Reader, name string, limit int64, write func([]byte)) error {
	pool := decoders[name]
	d := pool.Get().(*decoder)
	d.in.Reset(r)
	err := d.run(limit, write)
	d.in.Reset(nil)
	if d.zstd != nil {
		_ = d.zstd.Reset(nil)
	}
	pool.Put(d)
	return err
}

func (d *decoder) run(limit int64, write func([]byte)) error {
	var from io.Reader = d.gzip
	var err error
	if d.zstd != nil {
		from, err = d.zstd, d.zstd.Reset(d.in)
	} else {
		err = d.gzip.Reset(d.in)
	}
	for err == nil {
		var n int
		n, err = from.Read(d.out)
		write(d.out[:n])
		if limit -= int64(n); limit < 0 {
			return errTooLong
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
