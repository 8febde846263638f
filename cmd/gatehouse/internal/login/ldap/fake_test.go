package ldap_test

import (
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	ber "github.com/go-asn1-ber/asn1-ber"
	goldap "github.com/go-ldap/ldap/v3"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// The operations of LDAP that a fake is asked for (RFC 4511, section 4).
const (
	bindRequest   ber.Tag = 0
	searchRequest ber.Tag = 3
)

// message is a request.
type message struct {
	id        int64
	operation ber.Tag
	// dn is the name of a bind, or the base of a search.
	dn string
	// attributes are what a search asks for.
	attributes []string
}

// fake answers as a test wants, like a server that no test can have: Active
// Directory, one that is busy, one that lies.
type fake struct {
	url, authority string
	connections    atomic.Int64
	requests       atomic.Int64
	t              testing.TB
	listener       net.Listener
	ended          chan struct{}
}

// newFake starts a fake that ends with the test.
func newFake(t *testing.T, answer func(*fakeConn, message)) *fake {
	t.Helper()
	authority, err := cluster.NewAuthority("fake")
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := authority.Serve("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{
		url: "ldaps://" + listener.Addr().String(), authority: string(authority.CertPEM()),
		t: t, listener: listener, ended: make(chan struct{}),
	}
	t.Cleanup(func() {
		close(f.ended)
		_ = listener.Close()
	})
	go f.serve(answer)
	return f
}

// fakeConn is a fake on one connection.
type fakeConn struct {
	*fake
	net.Conn
}

func (f *fake) serve(answer func(*fakeConn, message)) {
	for {
		connection, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.connections.Add(1)
		go func() {
			defer connection.Close() //nolint:errcheck // the client has what it is to have
			for {
				packet, err := ber.ReadPacket(connection)
				if err != nil || len(packet.Children) < 2 {
					return
				}
				f.requests.Add(1)
				m := message{operation: packet.Children[1].Tag}
				m.id, _ = packet.Children[0].Value.(int64)
				for _, child := range packet.Children[1].Children {
					if text, ok := child.Value.(string); ok {
						m.dn = text
						break
					}
				}
				if fields := packet.Children[1].Children; m.operation == searchRequest && len(fields) == 8 {
					for _, child := range fields[7].Children {
						name, _ := child.Value.(string)
						m.attributes = append(m.attributes, name)
					}
				}
				answer(&fakeConn{f, connection}, m)
			}
		}()
	}
}

// hang does not answer until the test ends.
func (f *fakeConn) hang() { <-f.ended }

// answerLikeAServer says yes to a bind and finds nothing.
func (f *fakeConn) answerLikeAServer(m message) { f.result(m, goldap.LDAPResultSuccess, "") }

// result ends a request.
func (f *fakeConn) result(m message, code uint16, diagnostic string, controls ...goldap.Control) {
	operation := map[ber.Tag]ber.Tag{bindRequest: 1, searchRequest: 5}[m.operation]
	body := ber.Encode(ber.ClassApplication, ber.TypeConstructed, operation, nil, "")
	body.AppendChild(ber.NewInteger(ber.ClassUniversal, ber.TypePrimitive, ber.TagEnumerated, int64(code), ""))
	body.AppendChild(octets(""))
	body.AppendChild(octets(diagnostic))
	f.send(m, body, controls...)
}

// entry is one entry that a search finds, with those attributes that it asks for.
func (f *fakeConn) entry(m message, dn string, attributes map[string][]string) {
	body := ber.Encode(ber.ClassApplication, ber.TypeConstructed, 4, nil, "")
	body.AppendChild(octets(dn))
	set := ber.Encode(ber.ClassUniversal, ber.TypeConstructed, ber.TagSequence, nil, "")
	for name, values := range attributes {
		plain, _, _ := strings.Cut(name, ";")
		if !slices.ContainsFunc(m.attributes, func(asked string) bool { return strings.EqualFold(asked, plain) }) {
			continue
		}
		attribute := ber.Encode(ber.ClassUniversal, ber.TypeConstructed, ber.TagSequence, nil, "")
		attribute.AppendChild(octets(name))
		all := ber.Encode(ber.ClassUniversal, ber.TypeConstructed, ber.TagSet, nil, "")
		for _, value := range values {
			all.AppendChild(octets(value))
		}
		attribute.AppendChild(all)
		set.AppendChild(attribute)
	}
	body.AppendChild(set)
	f.send(m, body)
}

func (f *fakeConn) send(m message, body *ber.Packet, controls ...goldap.Control) {
	packet := ber.Encode(ber.ClassUniversal, ber.TypeConstructed, ber.TagSequence, nil, "")
	packet.AppendChild(ber.NewInteger(ber.ClassUniversal, ber.TypePrimitive, ber.TagInteger, m.id, ""))
	packet.AppendChild(body)
	if len(controls) > 0 {
		all := ber.Encode(ber.ClassContext, ber.TypeConstructed, 0, nil, "")
		for _, control := range controls {
			all.AppendChild(control.Encode())
		}
		packet.AppendChild(all)
	}
	_, _ = f.Write(packet.Bytes()) // a client that has left need not be told
}

func octets(text string) *ber.Packet {
	return ber.NewString(ber.ClassUniversal, ber.TypePrimitive, ber.TagOctetString, text, "")
}
