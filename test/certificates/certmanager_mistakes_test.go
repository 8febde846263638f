package certificates

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// heldBack bounds a start that a test keeps from being ready while it takes other steps, each of which may need
// [support.Deadline] on a busy machine.
const heldBack = 4 * support.Deadline

// start is a program that may never be ready.
type start struct {
	ops, log string
	// ended is closed when the program is ready, or will not be, which is what err says.
	ended  chan struct{}
	err    error
	server *gatehouse.Server
	cancel context.CancelFunc
}

// starts starts a replica, and does not wait. It ends with the test.
func (m *managed) starts(t *testing.T) *start {
	t.Helper()
	ops, err := cluster.UnusedAddress("127.0.0.1")
	must(t, err)
	s := &start{ops: ops, log: filepath.Join(t.TempDir(), "log"), ended: make(chan struct{})}
	ctx, cancel := context.WithTimeout(t.Context(), heldBack)
	s.cancel = cancel
	go func() {
		defer close(s.ended)
		s.server, s.err = gatehouse.Start(ctx, s.log, m.flags("replica", ops)...)
	}()
	t.Cleanup(s.stop)
	return s
}

// stop ends the program, whatever has become of it.
func (s *start) stop() {
	s.cancel()
	<-s.ended
	if s.server != nil {
		s.server.Kill()
	}
}

// refused waits until /readyz says why the program is not ready, and the log too.
func (s *start) refused(t *testing.T, says ...string) {
	t.Helper()
	s.unready(t, says...)
	support.Eventually(t, "the log", func() error {
		log, err := os.ReadFile(s.log)
		for _, want := range says {
			if err == nil && !strings.Contains(strings.ReplaceAll(string(log), `\"`, `"`), want) {
				err = fmt.Errorf("it does not say %q:\n%s", want, log)
			}
		}
		return err
	})
}

// unready waits until /readyz says why the program is not ready.
func (s *start) unready(t *testing.T, says ...string) {
	t.Helper()
	support.Eventually(t, "the program is not ready", func() error {
		select {
		case <-s.ended:
			t.Fatalf("the program is ready, or has ended: %v", s.err)
		default:
		}
		body, err := s.readyz(t.Context())
		for _, want := range says {
			if err == nil && !strings.Contains(body, want) {
				err = fmt.Errorf("/readyz says %q, want %q", body, want)
			}
		}
		return err
	})
}

func (s *start) readyz(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.ops+"/readyz", http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(response.Body)
	return string(body), errors.Join(err, response.Body.Close())
}

// accepted waits until the program is ready, without having been started again, and tells how long that took.
func (s *start) accepted(t *testing.T) time.Duration {
	t.Helper()
	begin := time.Now()
	select {
	case <-s.ended:
	case <-time.After(support.Deadline):
		s.cancel()
		<-s.ended
		t.Fatalf("the program is not ready after %s: %v", support.Deadline, s.err)
	}
	must(t, s.err)
	return time.Since(begin)
}

// A Certificate that is used as it is and does not exist is waited for, and one for another name is not good enough: the
// program says what to do, and is ready when somebody has done so.
func wrongNames(t *testing.T, m *managed) {
	m.clusterIssuer(t)
	m.inject(t)
	s := m.starts(t)
	s.refused(t, "Certificate "+m.name+"/"+m.name+": does not exist (hint: apply the output of gatehouse manifests --certificates cert-manager --rights)")
	m.createCertificate(t, "somebody.else.svc")
	s.refused(t, "ValidatingWebhookConfiguration "+m.name, "webhook "+`"validate.gatehouse.dev"`,
		fmt.Sprintf("it calls %q, and the serving certificate is not for that name", m.host()), "somebody.else.svc")
	patch := fmt.Appendf(nil, `{"spec":{"dnsNames":[%q]}}`, m.host())
	_, err := m.cm.Client().CertmanagerV1().Certificates(m.name).Patch(t.Context(), m.name, types.MergePatchType, patch, metav1.PatchOptions{})
	must(t, err)
	t.Logf("ready %s after the names were put right", s.accepted(t).Round(time.Millisecond))
}
