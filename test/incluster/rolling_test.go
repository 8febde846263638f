package incluster

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// Two replicas are replaced four times while the API server asks them all the time, and no call fails. Endpoints follow up
// to four seconds late, as in a cluster that is busy, so that replicas which are on their way out are still called.
//
// The control is a rollout of replicas that do not go on answering after they have been told to end. It does not run beside other
// tests: with few calls, or a process that takes as long to end as endpoints need to follow, no call meets a replica that is gone.
func TestRollingRestart(t *testing.T) {
	s := newSite(t, cluster.Options{ControllerManagerFlags: []string{"--endpointslice-updates-batch-period=4s"}})
	s.installTwo(t)
	s.createWorkloads(t)

	l := s.traffic(t)
	for range 4 {
		s.restart(t)
	}
	s.waitForReplicas(t, 2)
	l.noneFailed(t, 10_000)
	if len(l.pods) != 10 {
		t.Errorf("there were %d pods in four rollouts of two replicas, want 10", len(l.pods))
	}
	if strings.Contains(s.log.text(), "killed after its grace period") {
		t.Error("a replica did not end by itself")
	}

	t.Run("control: without a drain", func(t *testing.T) {
		_, err := s.kubectl(t.Context(), "", "patch", "deployment/gatehouse", "--namespace", system, "--type=json",
			"--patch", `[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--drain-delay=0s"}]`)
		must(t, err)
		s.rolledOut(t)
		l := s.traffic(t)
		l.more(t, 500)
		before := l.Failed()
		for range 5 { // one is enough nearly always
			s.restart(t)
			if l.Failed() > 0 {
				break
			}
		}
		l.end()
		t.Logf("%s: %s", l.Load, l.Why())
		if before > 0 {
			t.Errorf("%d calls failed before any replica was replaced", before)
		}
		if l.Failed() == 0 {
			t.Errorf("none of %d calls failed: this load does not see failures", l.Calls())
		}
	})
}
