package server_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// header is that of a call that announces a body of 1 MiB.
func header(t *testing.T) []byte {
	t.Helper()
	var block strings.Builder
	fields := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "a"}, {Name: ":path", Value: "/"}, {Name: "content-length", Value: "1048576"},
	} {
		if err := fields.WriteField(f); err != nil {
			t.Fatal(err)
		}
	}
	return []byte(block.String())
}

// TestFloods: a connection over which frames come that are of no call is closed.
func TestFloods(t *testing.T) {
	t.Parallel()
	settings := func(f *http2.Framer) error { return f.WriteSettings() }
	for name, test := range map[string]struct {
		first, again func(*http2.Framer) error
		most         int // bytes
	}{
		"SETTINGS": {nil, settings, quietBytes},
		"PING":     {nil, func(f *http2.Framer) error { return f.WritePing(false, [8]byte{1}) }, quietBytes},
		"PRIORITY": {nil, func(f *http2.Framer) error { return f.WritePriority(1, http2.PriorityParam{Weight: 1}) }, quietBytes},
		"unknown":  {nil, func(f *http2.Framer) error { return f.WriteRawFrame(0xfe, 0, 0, nil) }, quietBytes},
		"CONTINUATION": {
			func(f *http2.Framer) error {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: header(t)})
			},
			func(f *http2.Framer) error { return f.WriteContinuation(1, false, nil) }, quietBytes,
		},
		"beside a call": {
			func(f *http2.Framer) error {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: header(t), EndHeaders: true})
			},
			settings, 2 << 20,
		},
		"empty DATA of a call": {
			func(f *http2.Framer) error {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: header(t), EndHeaders: true})
			},
			func(f *http2.Framer) error { return f.WriteData(1, false, nil) }, 2 << 20,
		},
		"behind a call": {
			func(f *http2.Framer) error {
				err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: header(t), EndHeaders: true})
				if err == nil {
					err = f.WriteRSTStream(1, http2.ErrCodeCancel)
				}
				return err
			},
			settings, 2 << 20,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := startBubble(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
				conn := b.dial(t, "h2", false)
				sent := flood(t, conn, test.first, test.again, test.most)
				if sent > test.most {
					t.Errorf("the connection is open after %d bytes", sent)
				}
			})
		})
	}
}

// quietBytes is more than comes without a call.
const quietBytes = 80 << 10

// flood writes frames until the connection is closed or twice as much is written, and returns how many bytes were.
func flood(t *testing.T, conn *tls.Conn, first, again func(*http2.Framer) error, most int) (sent int) {
	t.Helper()
	framer := http2.NewFramer(conn, nil)
	framer.AllowIllegalWrites = true
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	if first != nil {
		if err := first(framer); err != nil {
			t.Fatal(err)
		}
	}
	const smallest = 31 // an empty frame in a record
	for sent < 2*most && again(framer) == nil {
		sent += smallest
	}
	return sent
}

// TestCallersAreNoFlood: what API servers do closes no connection.
func TestCallersAreNoFlood(t *testing.T) {
	t.Parallel()
	reading := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil || r.ContentLength >= 0 && n != r.ContentLength {
			t.Errorf("%d bytes were read: %v", n, err)
		}
	})
	for name, test := range map[string]struct {
		handler http.Handler
		call    func(t *testing.T, send func(body io.Reader) error, ping func() error)
	}{
		"pings for an hour": {reading, func(t *testing.T, send func(io.Reader) error, ping func() error) {
			for i := range 200 {
				if err := ping(); err != nil {
					t.Fatalf("ping %d: %v", i, err)
				}
				if time.Sleep(15 * time.Second); i%5 == 0 { // a connection without a review is closed after 100 seconds
					if err := send(http.NoBody); err != nil {
						t.Fatalf("behind ping %d: %v", i, err)
					}
				}
			}
		}},
		"large bodies": {reading, func(t *testing.T, send func(io.Reader) error, _ func() error) {
			for range 3 {
				if err := send(strings.NewReader(strings.Repeat("a", 31<<20))); err != nil {
					t.Fatal(err)
				}
			}
		}},
		"bodies by the byte": {reading, func(t *testing.T, send func(io.Reader) error, _ func() error) {
			if err := send(byteByByte(20_000)); err != nil {
				t.Fatal(err)
			}
		}},
		"bodies that are not read": {
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }),
			func(t *testing.T, send func(io.Reader) error, _ func() error) {
				done := make(chan error)
				for round := range 5 {
					for range 32 {
						go func() { done <- send(strings.NewReader(strings.Repeat("a", 2<<20))) }()
					}
					for range 32 {
						if err := <-done; err != nil {
							t.Fatalf("round %d: %v", round, err)
						}
					}
				}
			},
		},
		"calls without a body": {reading, func(t *testing.T, send func(io.Reader) error, _ func() error) {
			for i := range 2_000 {
				if err := send(http.NoBody); err != nil {
					t.Fatalf("call %d: %v", i, err)
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := startBubble(t, test.handler)
				client, err := (&http2.Transport{}).NewClientConn(b.dial(t, "h2", false))
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close() //nolint:errcheck // nothing is lost
				test.call(t, func(body io.Reader) error {
					response, err := client.RoundTrip(post(t.Context(), t, "https://127.0.0.1/", body))
					if err != nil {
						return err
					}
					_, err = io.Copy(io.Discard, response.Body)
					return err
				}, func() error { return client.Ping(t.Context()) })
			})
		})
	}
}

// byteByByte returns a reader of so many bytes, one at a time.
func byteByByte(n int64) io.Reader {
	return iotest.OneByteReader(io.LimitReader(zeros{}, n))
}

type zeros struct{}

func (zeros) Read(into []byte) (int, error) { clear(into); return len(into), nil }
