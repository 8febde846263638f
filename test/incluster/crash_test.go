package incluster

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/kubelet"
	"github.com/gatehouse-dev/gatehouse/test/support/load"
)

// roundTripBalancing is the minor version of Kubernetes from which an API server chooses a replica for each review. Before, it
// chooses one for each connection, and uses open connections as long as their replica answers.
const roundTripBalancing = 37

// One of two replicas is killed, as by a lack of memory. What was under way there is lost; everything else depends on how
// soon the cluster stops calling it, for an API server does not call another replica when one refuses its connection.
func TestKill(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.installTwo(t)
	s.createWorkloads(t)

	for _, test := range []struct {
		name string
		// hangs makes it hang first until every call waits for it, or before Kubernetes 1.37 some do, so that there are some to
		// lose. A hang shows by itself if it is long, so that there is none where it is to be noticed late.
		hangs bool
		// late makes the node notice only when the other replica has answered enough calls.
		late bool
		// most is how many calls of each caller may fail, 0 for any number. All fail at once, one after another, while the
		// address of what is not there any more is an endpoint.
		most int64
	}{
		{"the node notices at once", true, false, 5},
		{"the node notices late", false, true, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s.waitForReplicas(t, 2)
			if test.late {
				s.kubelet.DelayNotice()
			}
			l := s.traffic(t)
			l.more(t, 10*load.Callers)
			if failed := l.Failed(); failed > 0 {
				t.Fatalf("%d calls failed before a replica was killed: %s", failed, l.Why())
			}

			victim := s.kubelet.Pods()[0]
			restarts := victim.Restarts()
			if test.hangs {
				must(t, victim.Process().Signal(syscall.SIGSTOP))
				if s.Minor(t) >= roundTripBalancing {
					l.stalled(t)
				} else {
					l.more(t, load.Callers)
				}
			}
			must(t, victim.Process().Kill())
			killed := time.Now()
			atKill := l.Calls() - l.Failed()
			if test.late {
				support.Eventually(t, "the other replica answers while the endpoint is there", func() error {
					if n := l.Calls() - l.Failed() - atKill; n < load.Callers {
						return fmt.Errorf("%d calls were answered", n)
					}
					return nil
				})
				s.kubelet.Notice()
			}
			s.withdrawn(t, victim)
			withdrawn, answered := time.Since(killed), l.Calls()-l.Failed()-atKill
			waitForSuccesses(t, l.Load)
			over := l.LastFailure().Sub(killed)

			// It comes back under its old address, which fails no call either.
			failed := l.Failed()
			s.waitForReplicas(t, 2)
			waitForSuccesses(t, l.Load)
			l.end()
			became := l.became()
			t.Logf("%s: %v; the endpoint was withdrawn after %s, in which %d calls were answered; the last call failed %s after the kill%s",
				l.Load, became, withdrawn.Round(time.Millisecond), answered, over.Round(time.Millisecond), l.Why())
			if test.hangs && became[lost] == 0 {
				t.Error("no call was lost: nothing was under way")
			}
			// One for each call that was under way, and one for each connection that was about to be used.
			if became[lost] > 2*load.Callers {
				t.Errorf("%d calls were lost, and no more than %d can have been under way", became[lost], load.Callers)
			}
			if n := became[otherwise]; n > 0 {
				t.Errorf("%d calls failed for another reason than the kill", n)
			}
			if most := test.most * load.Callers; most > 0 && l.Failed() > most {
				t.Errorf("%d calls failed, want %d at most", l.Failed(), most)
			}
			if l.Failed() > failed {
				t.Errorf("%d calls failed when the replica came back", l.Failed()-failed)
			}
			if n := victim.Restarts() - restarts; n != 1 {
				t.Errorf("the replica was started again %d times, want once", n)
			}
		})
	}
}

// What becomes of calls to a replica that hangs, is killed, and is not there.
const (
	// lost is that the connection ended while the call was under way, or was about to be.
	lost = "lost"
	// late is that no answer came in time.
	late = "late"
	// unreachable is that there was nobody to connect to.
	unreachable = "unreachable"
	// open is one of these where the webhook fails open, so that the pod was created as it was.
	open = "let pass"
	// otherwise is everything else.
	otherwise = "something else"
)

// became counts failed calls by what became of them.
func (l *traffic) became() map[string]int {
	counts := map[string]int{}
	for reason, n := range l.Reasons() {
		kind := otherwise
		for _, test := range []struct{ kind, text string }{
			{lost, ": EOF"},
			{lost, "connection reset by peer"},
			{lost, "use of closed network connection"},
			{lost, "broken pipe"},
			{lost, "server closed idle connection"},
			{late, "context deadline exceeded"},
			{unreachable, "connection refused"},
			{open, "it was created with the sidecars []"},
		} {
			if strings.Contains(reason, test.text) {
				kind = test.kind
				break
			}
		}
		counts[kind] += n
	}
	return counts
}

// stalled waits until every caller waits for an answer.
func (l *traffic) stalled(t *testing.T) {
	t.Helper()
	const still = 300 * time.Millisecond // below the time that an API server waits, and long for a call that does not hang
	calls, since := l.Calls(), time.Now()
	support.Eventually(t, "every call hangs", func() error {
		if now := l.Calls(); now != calls {
			calls, since = now, time.Now()
		}
		if time.Since(since) < still {
			return errors.New("calls are answered")
		}
		return nil
	})
}

// withdrawn waits until the API server knows that a pod is no endpoint of the Service.
func (s *site) withdrawn(t *testing.T, pod *kubelet.Pod) {
	t.Helper()
	support.Eventually(t, "the endpoint is withdrawn", func() error {
		slices, err := s.Client().DiscoveryV1().EndpointSlices(system).List(t.Context(), metav1.ListOptions{
			LabelSelector: discoveryv1.LabelServiceName + "=gatehouse",
		})
		if err != nil {
			return err
		}
		for _, slice := range slices.Items {
			for _, endpoint := range slice.Endpoints {
				ready := endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
				if ready && endpoint.Addresses[0] == pod.Address.String() {
					return fmt.Errorf("%s is one still", pod.Address)
				}
			}
		}
		return nil
	})
}
