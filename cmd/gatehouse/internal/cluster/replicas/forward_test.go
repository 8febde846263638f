package replicas

import (
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
)

// deadNode is a connection to a node that cannot connect to the port: what is sent fails, and the node says why beside it.
type deadNode struct{ httpstream.Connection }

func (deadNode) Close() error { return nil }

func (deadNode) CreateStream(header http.Header) (httpstream.Stream, error) {
	if header.Get(corev1.StreamType) == corev1.StreamTypeError {
		return deadStream{reader: strings.NewReader("connection refused")}, nil
	}
	return deadStream{reader: strings.NewReader("")}, nil
}

type deadStream struct {
	httpstream.Stream

	reader io.Reader
}

func (s deadStream) Read(p []byte) (int, error) { return s.reader.Read(p) }
func (deadStream) Write([]byte) (int, error)    { return 0, io.ErrClosedPipe }
func (deadStream) Close() error                 { return nil }

// TestForwardSaysWhy gets the node's reason from reading and from writing, because net/http reports what fails first.
func TestForwardSaysWhy(t *testing.T) {
	t.Parallel()
	c, err := newPodConnection(deadNode{}, 8081)
	if err != nil {
		t.Fatal(err)
	}
	for name, use := range map[string]func([]byte) (int, error){"Read": c.Read, "Write": c.Write, "Read again": c.Read} {
		if _, err := use(make([]byte, 1)); err == nil || err.Error() != "forward port 8081: connection refused" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
