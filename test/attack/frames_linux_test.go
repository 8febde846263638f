package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"strconv"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2 is an HTTP/2 connection of which every frame is written by hand. It is for one writer.
type h2 struct {
	conn   *tls.Conn
	mu     sync.Mutex // of frames, between the writer and the reader that acknowledges
	framer *http2.Framer
	block  bytes.Buffer
	fields *hpack.Encoder
	stream uint32
	// closed is closed with the connection, by either side.
	closed chan struct{}
}

// h2 connects the attacker and reads whatever comes, so that the server never waits for it.
func (t *target) h2(ctx context.Context) (*h2, error) {
	conn, err := t.tls(ctx, "h2")
	if err != nil {
		return nil, err
	}
	c := &h2{conn: conn, framer: http2.NewFramer(conn, conn), stream: 1, closed: make(chan struct{})}
	c.framer.AllowIllegalWrites = true
	c.fields = hpack.NewEncoder(&c.block)
	_, err = io.WriteString(conn, http2.ClientPreface)
	if err == nil {
		err = c.framer.WriteSettings()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	go func() {
		defer close(c.closed)
		defer stop()
		c.read()
	}()
	return c, nil
}

// read reads until the connection is closed, and acknowledges settings.
func (c *h2) read() {
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			_ = c.conn.Close()
			return
		}
		if settings, ok := frame.(*http2.SettingsFrame); ok && !settings.IsAck() {
			c.mu.Lock()
			err = c.framer.WriteSettingsAck()
			c.mu.Unlock()
			if err != nil {
				_ = c.conn.Close()
			}
		}
	}
}

// write writes frames.
func (c *h2) write(frames func(*http2.Framer) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return frames(c.framer)
}

// post begins a review on a stream of its own. The length is that of the body which is announced, none below 0.
func (c *h2) post(length int, further ...hpack.HeaderField) (stream uint32, err error) {
	stream = c.stream
	c.stream += 2
	c.block.Reset()
	all := []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "https"},
		{Name: ":authority", Value: serverName},
		{Name: ":path", Value: "/validate?timeout=10s"},
		{Name: "content-type", Value: "application/json"},
	}
	if length >= 0 {
		all = append(all, hpack.HeaderField{Name: "content-length", Value: strconv.Itoa(length)})
	}
	for _, field := range append(all, further...) {
		err := c.fields.WriteField(field)
		if err != nil {
			return 0, fmt.Errorf("encode %s: %w", field.Name, err)
		}
	}
	return stream, c.write(func(f *http2.Framer) error {
		const most = 16 << 10
		block := c.block.Bytes()
		first := block[:min(len(block), most)]
		block = block[len(first):]
		err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndHeaders: len(block) == 0})
		for err == nil && len(block) > 0 {
			part := block[:min(len(block), most)]
			block = block[len(part):]
			err = f.WriteContinuation(stream, len(block) == 0, part)
		}
		return err
	})
}
