package attack

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	kibibyte = 1 << 10
	mebibyte = 1 << 20
)

// attacks is the table. Each attack is a client of its own, which has read the protocols and goes on when it is refused.
func attacks() []attack {
	return []attack{
		{"2 connections of 250 idle streams that announce 64 KiB", 2, 100, streams(250, 64*kibibyte, "")},
		{"2 connections of 250 idle streams that announce nothing", 2, 100, streams(250, -1, "")},
		{"80 connections of 250 idle streams that announce 10 bytes", 80, 20, streams(250, 10, "")},
		{"idle streams from 200 addresses of a network", 300, 20, fromAddresses("127.0.1.%d", streams(32, 10, ""))},
		{"idle streams from 200 networks", 300, 20, fromAddresses("127.1.%d.1", streams(32, 10, ""))},
		{"bodies that stop short from 200 networks, over HTTP/2", 300, 20, fromAddresses("127.1.%d.1", streams(32, 64*kibibyte, "{"))},
		{"bodies that stop short from 200 networks, over HTTP/1.1", 300, 20, fromAddresses("127.1.%d.1", http1(post(10)+"{", "", 0))},
		{"80 connections of 250 streams whose bodies stop short", 80, 20, streams(250, 64*kibibyte, "{")},
		{"450 connections whose answers are not read", 450, 20, unread},
		{"1,500 connections that announce 100,000 bytes and send one", 1500, 5, http1(post(100_000)+"{", "", 0)},
		{"500 connections with a byte of the body a second", 500, 5, http1(post(2_000), "{", time.Second)},
		{"2,000 connections with a byte of the header a second", 2000, 5, http1("POST /validate HTTP/1.1\r\nHost: x\r\nX-A: ", "a", time.Second)},
		{"16 bodies of 31 MiB", 16, 20, body(identity, largeBody())},
		{"2,000 slow headers and 16 bodies of 31 MiB", 2016, 5, slowHeadersAndBodies()},
		{"9 MB of empty objects", 4, 100, body(identity, "["+strings.Repeat("{},", 3_000_000)+"{}]")},
		{"gzip", 4, 500, body("gzip", "\x1f\x8b\x08\x00\x00\x00\x00\x00")},
		{"deep nesting", 4, 100, body(identity, string(review("1", strings.Repeat(`{"a":`, 100_000)+"1"+strings.Repeat("}", 100_000), "")))},
		{"pods with 4,000 containers", 12, 500, body(identity, string(manyContainers(4_000)))},
		{"ephemeral containers compared", 8, 500, body(identity, string(ephemeralContainers(5_500)))},
		{"sysctls for each container", 8, 500, body(identity, string(sysctls(1_000, 3_000)))},
		{"a profile of 20 patterns", 4, 500, body(identity, string(profile(20)))},
		{"a profile of 100 patterns", 4, 500, body(identity, string(profile(100)))},
		{"a policy of 490 KiB", 4, 500, body(identity, string(policy(490*kibibyte)))},
		{"denials", 8, 2_000, body(identity, string(review("1", strings.Replace(smallPod, "app:1", "app:latest", 1), "")))},
		{"denials of names of 256 KiB", 4, 200, body(identity, strings.Replace(
			string(review("1", strings.Replace(smallPod, "app:1", "app:latest", 1), "")), `"name":"web"`, `"name":"`+strings.Repeat("w", 256*kibibyte)+`"`, 1))},
		{"what is no review", 8, 2_000, body(identity, `{"kind":"Pod"}`)},
		{"rapid reset", 8, 20, rapidReset},
		{"frames that are too large", 20, 100, hugeFrames},
		{"SETTINGS flood", 4, 20, flood(none, func(f *http2.Framer) error {
			return f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 65535})
		})},
		{"empty SETTINGS flood", 4, 20, flood(none, func(f *http2.Framer) error { return f.WriteSettings() })},
		{"PING flood", 4, 20, flood(none, func(f *http2.Framer) error { return f.WritePing(false, [8]byte{1}) })},
		{"PRIORITY flood", 4, 20, flood(none, func(f *http2.Framer) error { return f.WritePriority(1, http2.PriorityParam{Weight: 1}) })},
		{"empty CONTINUATION flood", 4, 20, flood(opened, func(f *http2.Framer) error { return f.WriteContinuation(1, false, nil) })},
		{"CONTINUATION flood", 20, 50, continuations},
		{"headers of 60 KiB", 200, 10, http1("POST /validate HTTP/1.1\r\nHost: x\r\nX-A: "+strings.Repeat("a", 60*kibibyte), "", 0)},
		{"compressed headers that become large", 20, 20, headerBomb},
		{"pipelining", 20, 50, pipelining},
		{"10,000 connections without a handshake", 10_000, 2, unspoken("")},
		{"1,000 handshakes that stop short", 1_000, 20, unspoken("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")},
		{"3,000 idle connections", 3_000, 2, http1("", "", 0)},
		{"plain HTTP", 20, 500, unspoken("GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
		{"other paths and logins", 8, 1_000, requests(others()...)},
		{"access reviews of 256 KiB without a certificate", 8, 1_000, requests(accessReview(256 * kibibyte))},
		{"access reviews that stop short from 200 networks", 300, 20, fromAddresses("127.1.%d.1", http1(accessReview(256 * kibibyte)[:1_000], "", 0))},
		{"forged logout tokens", 8, 1_000, requests(logout(forgedToken()))},
		{"forged logout tokens from 200 networks", 300, 20, fromAddresses("127.1.%d.1", requests(logout(forgedToken())))},
		{"exchanges of forged tokens from 200 networks", 300, 20, fromAddresses("127.1.%d.1", requests(narrow(forgedToken())))},
		{"logouts that stop short from 200 networks", 300, 20, fromAddresses("127.1.%d.1", http1(logout(forgedToken())[:1_000], "", 0))},
	}
}

// identity is a body as it is.
const identity = ""

type doer = func(ctx context.Context, t *target, reached *atomic.Int64) error

// post is the header of a review over HTTP/1.1.
func post(length int) string {
	return fmt.Sprintf("POST /validate?timeout=10s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", length)
}

// hold keeps a connection until the server closes it or the context ends.
func hold(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer conn.Close() //nolint:errcheck // nothing is lost
	_, err := io.Copy(io.Discard, conn)
	return err
}

// http1 connects, writes the beginning, and then the same again at an interval.
func http1(begin, again string, interval time.Duration) doer {
	return func(ctx context.Context, t *target, reached *atomic.Int64) error {
		conn, err := t.tls(ctx, "http/1.1")
		if err != nil {
			return err
		}
		_, err = io.WriteString(conn, begin)
		if err != nil {
			_ = conn.Close()
			return err
		}
		reached.Add(1)
		if interval > 0 {
			ended := make(chan struct{})
			defer close(ended)
			go trickle(conn, again, interval, ended)
		}
		return hold(ctx, conn)
	}
}

func trickle(conn net.Conn, text string, interval time.Duration, ended <-chan struct{}) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			return
		case <-ticker.C:
			_, err := io.WriteString(conn, text)
			if err != nil {
				return
			}
		}
	}
}

// body posts a whole review over HTTP/1.1 as often and as fast as it is answered.
func body(encoding, text string) doer {
	return func(ctx context.Context, t *target, reached *atomic.Int64) error {
		transport := t.transport(t.attacker, "HTTP/1.1")
		defer transport.CloseIdleConnections()
		// The server may refuse a body before it has come.
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { reached.Add(1) }})
		for {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+t.Reviews.String()+"/validate?timeout=10s", strings.NewReader(text))
			if err != nil {
				return err
			}
			request.Header.Set("Content-Type", "application/json")
			if encoding != identity {
				request.Header.Set("Content-Encoding", encoding)
			}
			response, err := transport.RoundTrip(request)
			if err != nil {
				return err
			}
			_, _ = io.Copy(io.Discard, response.Body) // whatever it says
			_ = response.Body.Close()
		}
	}
}

// answered counts what comes back.
type answered struct{ reached *atomic.Int64 }

func (a answered) Write(text []byte) (int, error) {
	a.reached.Add(int64(strings.Count(string(text), "HTTP/1.1 ")))
	return len(text), nil
}

// slowHeadersAndBodies has one worker in 126 send bodies.
func slowHeadersAndBodies() doer {
	header := http1("POST /validate HTTP/1.1\r\nHost: x\r\nX-A: ", "a", time.Second)
	large := body(identity, largeBody())
	var turn atomic.Int64
	return func(ctx context.Context, t *target, reached *atomic.Int64) error {
		if turn.Add(1)%126 == 0 {
			return large(ctx, t, reached)
		}
		return header(ctx, t, reached)
	}
}

// streams opens n streams, each of which announces a length and sends the beginning of a body, and opens as many again as
// often as the connection is closed.
func streams(n, length int, begin string) doer {
	return func(ctx context.Context, t *target, reached *atomic.Int64) error {
		c, err := t.h2(ctx)
		if err != nil {
			return err
		}
		for range n {
			stream, err := c.post(length)
			if err == nil && begin != "" {
				err = c.write(func(f *http2.Framer) error { return f.WriteData(stream, false, []byte(begin)) })
			}
			if err != nil {
				break // the server has closed the connection
			}
			reached.Add(1)
		}
		<-c.closed
		return io.EOF
	}
}

// fromAddresses attacks from 200 addresses, and begins again every 1.5 seconds.
func fromAddresses(format string, do doer) doer {
	const addresses, again = 200, 1500 * time.Millisecond
	var turn atomic.Int64
	return func(ctx context.Context, t *target, reached *atomic.Int64) error {
		ctx, cancel := context.WithTimeout(ctx, again)
		defer cancel()
		err := do(ctx, t.from(fmt.Sprintf(format, turn.Add(1)%addresses)), reached)
		<-ctx.Done()
		return err
	}
}

// unread opens no window for answers, so that each waits until the server gives it up.
func unread(ctx context.Context, t *target, reached *atomic.Int64) error {
	c, err := t.h2(ctx)
	if err != nil {
		return err
	}
	err = c.write(func(f *http2.Framer) error {
		return f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	})
	for range 32 {
		if err == nil {
			_, err = c.post(0)
		}
		if err != nil {
			break // the server has closed the connection
		}
		reached.Add(1)
	}
	<-c.closed
	return io.EOF
}

// rapidReset begins reviews and takes them back.
func rapidReset(ctx context.Context, t *target, reached *atomic.Int64) error {
	c, err := t.h2(ctx)
	if err != nil {
		return err
	}
	for range 20_000 {
		stream, err := c.post(10)
		if err == nil {
			err = c.write(func(f *http2.Framer) error { return f.WriteRSTStream(stream, http2.ErrCodeCancel) })
		}
		if err != nil {
			return err
		}
		reached.Add(1)
	}
	<-c.closed
	return io.EOF
}

// flood writes one frame, and others again and again. What has reached the server are the connections that it has closed for it.
func flood(first, again func(*http2.Framer) error) doer {
	return func(ctx context.Context, t *target, reached *atomic.Int64) error {
		c, err := t.h2(ctx)
		if err != nil {
			return err
		}
		err = c.write(first)
		for range 50_000 {
			if err != nil {
				break
			}
			err = c.write(again)
		}
		<-c.closed
		if ctx.Err() == nil {
			reached.Add(1)
		}
		return io.EOF
	}
}

// none writes no frame.
func none(*http2.Framer) error { return nil }

// opened begins a header that does not end.
func opened(f *http2.Framer) error {
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
}

// hugeFrames announces a frame of 16 MiB and sends what it can of it.
func hugeFrames(ctx context.Context, t *target, reached *atomic.Int64) error {
	c, err := t.h2(ctx)
	if err != nil {
		return err
	}
	stream, err := c.post(-1)
	if err != nil {
		return err
	}
	frame := binary.BigEndian.AppendUint32(nil, (16*mebibyte-1)<<8|uint32(http2.FrameData))
	frame = binary.BigEndian.AppendUint32(append(frame, 0), stream)
	c.mu.Lock()
	_, err = c.conn.Write(append(frame, make([]byte, mebibyte)...))
	c.mu.Unlock()
	reached.Add(1)
	if err == nil {
		<-c.closed
	}
	return err
}

// continuations is a header that never ends.
func continuations(ctx context.Context, t *target, reached *atomic.Int64) error {
	c, err := t.h2(ctx)
	if err != nil {
		return err
	}
	err = c.write(opened)
	// A literal without indexing, name "a", and a value of 8 KiB.
	field := append([]byte{0x00, 1, 'a', 0x7f, 0x81, 0x3f}, make([]byte, 8*kibibyte)...)
	for range 2_000 {
		if err != nil {
			return err
		}
		err = c.write(func(f *http2.Framer) error { return f.WriteContinuation(1, false, field) })
		reached.Add(1)
	}
	return err
}

// headerBomb has the server keep a field of 3.9 KiB, and names it 15 times in each of many headers, a byte each.
func headerBomb(ctx context.Context, t *target, reached *atomic.Int64) error {
	c, err := t.h2(ctx)
	if err != nil {
		return err
	}
	fields := make([]hpack.HeaderField, 15)
	for i := range fields {
		fields[i] = hpack.HeaderField{Name: "x-a", Value: strings.Repeat("a", 3_900)}
	}
	for range 250 {
		_, err := c.post(10, fields...)
		if err != nil {
			return err
		}
		reached.Add(1)
	}
	<-c.closed
	return io.EOF
}

// pipelining writes many reviews before it reads an answer.
func pipelining(ctx context.Context, t *target, reached *atomic.Int64) error {
	conn, err := t.tls(ctx, "http/1.1")
	if err != nil {
		return err
	}
	text := string(review("1", smallPod, ""))
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = io.WriteString(conn, strings.Repeat(post(len(text))+text, 2_000)) // the server may close the connection
	}()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	_, err = io.Copy(answered{reached}, conn)
	_ = conn.Close()
	<-written
	return err
}

// unspoken is a connection without a handshake, or with the beginning of one.
func unspoken(begin string) doer {
	return func(ctx context.Context, t *target, reached *atomic.Int64) error {
		conn, err := t.tcp(ctx, t.attacker)
		if err != nil {
			return err
		}
		_, err = io.WriteString(conn, begin)
		if err != nil {
			_ = conn.Close()
			return err
		}
		reached.Add(1)
		return hold(ctx, conn)
	}
}

// others are calls of what is for people, and of paths that do not exist.
func others() []string {
	return []string{
		"GET /login HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /login HTTP/1.1\r\nHost: x\r\nAuthorization: Basic YTpi\r\nContent-Length: 0\r\n\r\n",
		"GET /whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + strings.Repeat("a.", 8*kibibyte) + "\r\n\r\n",
		"POST /authenticate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n",
		"GET /" + strings.Repeat("a", 8*kibibyte) + " HTTP/1.1\r\nHost: x\r\n\r\n",
	}
}

// accessReview is a call of /authorize about a user with a large scope. Without a client certificate it is refused before its body is read.
func accessReview(size int) string {
	body := `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"nonResourceAttributes":{"path":"/","verb":"get"},` +
		`"user":"jane","extra":{"gatehouse.dev/scope":["` + strings.Repeat("a", size) + `"]}}}`
	return fmt.Sprintf("POST /authorize?timeout=3s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// forgedToken is a logout token as large as one may be, of which the signature alone is wrong.
func forgedToken() string {
	const largest = 16 * kibibyte
	encode := base64.RawURLEncoding.EncodeToString
	now := time.Now().Unix()
	token := func(padding int) string {
		claims := fmt.Sprintf(`{"iss":"https://issuer.example","aud":"kubernetes","sid":"a","jti":"a","iat":%d,"exp":%d,`+
			`"events":{"http://schemas.openid.net/event/backchannel-logout":{}},"padding":"%s"}`, now, now+3600, strings.Repeat("a", padding))
		return encode([]byte(`{"alg":"ES256","kid":"one"}`)) + "." + encode([]byte(claims)) + "." + encode([]byte(strings.Repeat("\x01", 64)))
	}
	return token((largest - len(token(0))) * 3 / 4)
}

// logout is a call of /logout.
func logout(token string) string {
	const field = "logout_token="
	return fmt.Sprintf("POST /logout HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s%s", len(field)+len(token), field, token)
}

// narrow is a call of /login that exchanges a token for one with a scope.
func narrow(token string) string {
	body := fmt.Sprintf(`{"token":%q,"scope":"view"}`, token)
	return fmt.Sprintf("POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// requests makes calls, each on a connection of its own.
func requests(texts ...string) doer {
	return func(ctx context.Context, t *target, reached *atomic.Int64) error {
		for _, text := range texts {
			conn, err := t.tls(ctx, "http/1.1")
			if err != nil {
				return err
			}
			err = exchange(ctx, conn, text, reached)
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func exchange(ctx context.Context, conn *tls.Conn, request string, reached *atomic.Int64) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer conn.Close() //nolint:errcheck // nothing is lost
	_, err := io.WriteString(conn, request)
	if err == nil {
		_, err = io.Copy(answered{reached}, conn) // the server closes such connections
	}
	return err
}

// list joins n elements.
func list(n int, element func(i int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = element(i)
	}
	return strings.Join(all, ",")
}

// largeBody is a review of 31 MiB that can be decided.
func largeBody() string {
	annotations := `"annotations":{"a":"` + strings.Repeat("a", 31*mebibyte) + `"},"labels":`
	return string(review("1", strings.Replace(smallPod, `"labels":`, annotations, 1), ""))
}

// manyContainers is a pod of about 221 KiB.
func manyContainers(n int) []byte {
	containers := list(n, func(i int) string { return fmt.Sprintf(`{"name":"c%d","image":"registry.example/app:1","env":[]}`, i) })
	return review("1", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[`+containers+`]}}`, "")
}

// ephemeralContainers is an update of a pod that changes nothing in them.
func ephemeralContainers(n int) []byte {
	containers := list(n, func(i int) string { return fmt.Sprintf(`{"name":"c%d","image":"i"}`, i) })
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"app:1"}],"ephemeralContainers":[` + containers + `]}}`
	return review("1", pod, pod)
}

// sysctls is an update of a pod that was forbidden before.
func sysctls(containers, n int) []byte {
	pod := func(image string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"securityContext":{"sysctls":[` +
			list(n, func(i int) string { return fmt.Sprintf(`{"name":"kernel.a%d","value":"1"}`, i) }) + `]},"containers":[` +
			list(containers, func(i int) string { return fmt.Sprintf(`{"name":"c%d","image":"%s:1"}`, i, image) }) + `]}}`
	}
	return review("1", pod("new"), pod("old"))
}

// profile is a SidecarProfile whose parameters have patterns of which each byte takes kilobytes when it is compiled.
func profile(patterns int) []byte {
	const piece = "a{1000}"
	pattern := strings.Repeat(piece, 1024/len(piece)) // as long as one may be
	parameters := list(patterns, func(i int) string {
		return fmt.Sprintf(`{"name":"p%d","type":"string","default":"","pattern":"%s"}`, i, pattern)
	})
	return reviewOf("1", "gatehouse.dev", "v1alpha1", "SidecarProfile", "sidecarprofiles",
		`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"SidecarProfile","metadata":{"name":"web"},"spec":{"parameters":[`+parameters+
			`],"template":{"spec":{"initContainers":[{"name":"logs","image":"logs:1","restartPolicy":"Always"}]}}}}`, "")
}

// policy is an AdmissionPolicy with many rules, none of which is twice in it.
func policy(size int) []byte {
	rule := func(i int) string {
		return fmt.Sprintf(`{"expression":"'%06d' == object.metadata.name || object.metadata.name.matches('a{400}')","message":"no"}`, i)
	}
	return reviewOf("1", "gatehouse.dev", "v1alpha1", "AdmissionPolicy", "admissionpolicies",
		`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AdmissionPolicy","metadata":{"name":"web"},"spec":{"matchConstraints":{"resourceRules":[`+
			`{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]},"validationActions":["Deny"],"validations":[`+
			list(size/len(rule(0)), rule)+`]}}`, "")
}
