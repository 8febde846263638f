package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Calls of clients that take no answers, by windows of 0 bytes, are bounded in number while they wait for that.
func TestUnreadAnswersAreBounded(t *testing.T) {
	t.Parallel()
	const conns, streams, most = 60, 32, 1_300 // 1,920 streams; 768 reviews have memory, 256 are being refused, 512 are no reviews
	for _, path := range []string{"/mutate", "/authenticate", "/"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			var now, peak, began atomic.Int64
			reviews := emptyReviews(t)
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				began.Add(1)
				n := now.Add(1)
				for p := peak.Load(); n > p; p = peak.Load() {
					if peak.CompareAndSwap(p, n) {
						break
					}
				}
				defer now.Add(-1)
				defer func() { _ = http.NewResponseController(w).Flush() }() // as net/http does behind every handler
				reviews.ServeHTTP(w, r)
			}))
			s.EnableHTTP2 = true
			s.StartTLS()
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for range conns {
				all.Go(func() {
					if err := unread(ctx, s.Listener.Addr().String(), path, streams); err != nil {
						t.Error(err)
					}
				})
			}
			for until := time.Now().Add(10 * time.Second); began.Load() < conns*streams && time.Now().Before(until); {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(200 * time.Millisecond)
			t.Logf("%d calls, %d at one time", began.Load(), peak.Load())
			if peak.Load() > most {
				t.Errorf("%d calls were in progress at one time, want at most %d", peak.Load(), most)
			}
			cancel()
			all.Wait()
			s.Close()
		})
	}
}

// unread makes calls whose answers it does not take, until the context ends.
func unread(ctx context.Context, address, path string, streams int) error {
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close() //nolint:errcheck // nothing is lost
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	f := http2.NewFramer(conn, conn)
	var block bytes.Buffer
	fields := hpack.NewEncoder(&block)
	_, err = io.WriteString(conn, http2.ClientPreface)
	if err == nil {
		err = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	}
	for i := 0; i < streams && err == nil; i++ {
		block.Reset()
		for _, field := range [...][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "x"}, {":path", path}} {
			_ = fields.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	}
	if err != nil {
		return fmt.Errorf("call: %w", err)
	}
	<-ctx.Done()
	return nil
}
