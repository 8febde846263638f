package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// deleteDefinitions deletes CustomResourceDefinitions with all their objects.
func (w *world) deleteDefinitions(ctx context.Context, names ...string) error {
	output, err := w.Kubectl(ctx, append([]string{"delete", "crd", "--timeout=60s"}, names...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}

// unserved reports whether a line says of a kind that there is no definition, with the remedy.
func unserved(kind string) func(*logLine) bool {
	return func(l *logLine) bool {
		return l.Message == "reading from the cluster" && strings.HasPrefix(l.Kind, kind+".") &&
			strings.Contains(l.Error, "cannot read custom resources of kind "+kind) && strings.Contains(l.Hint, "gatehouse manifests --crds")
	}
}

// Without definitions the server starts, says what is missing, and uses custom resources as soon as there can be any.
func TestMissingDefinitions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.createShop(t)
	c := newResourceInstall(t, w, resourceOptions{})
	began := time.Now()
	c.start(t)
	t.Logf("ready without any definition after %v", time.Since(began))
	for _, kind := range []string{"AdmissionPolicy", "SidecarProfile", "AccessToken"} {
		if n := c.logged(t, kind, unserved(kind)); n != 1 {
			t.Errorf("%d lines tell that there is no %s", n, kind)
		}
		support.Eventually(t, "the metric of "+kind, func() error {
			n, err := c.server.Metric(t.Context(), "gatehouse_cluster_watch_errors_total", kind, `reason="unserved"`)
			if err == nil && n == 0 {
				err = errors.New("none is counted")
			}
			return err
		})
	}
	w.refuses(t, "red", "")

	// They arrive: what is applied then counts within seconds.
	must(t, w.applyDefinitions(t.Context()))
	must(t, w.apply(t.Context(), policyNamed("red", "object.metadata.name != 'red'", "")+profileNamed("logs")))
	began = time.Now()
	w.refuses(t, "red", "no red")
	w.sidecarImages(t, "x")
	t.Logf("used %v after the definitions", time.Since(began))
	w.hasConditions(t, "admissionpolicy", "", "red", "Compiled=True/Compiled", inUse, healthy)

	// One is deleted, with its objects. A gate that was there stays for a while: of an API server that is starting, this
	// is what it would say.
	must(t, w.deleteDefinitions(t.Context(), "sidecarprofiles.gatehouse.dev"))
	w.refuses(t, "red", "no red")
}

// Without any one of its rights a server says which it is and what to do, and everything else goes on.
func TestMissingRightsOnCustomResources(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(t, w.applyDefinitions(t.Context()))
	w.createShop(t)
	must(t, w.apply(t.Context(), policyNamed("red", "object.metadata.name != 'red'", "")+profileNamed("logs")))
	const (
		mustAllow  = "the ClusterRole gatehouse-resources must allow get, list and watch of "
		noPolicies = mustAllow + "admissionpolicies.gatehouse.dev"
		noTokens   = mustAllow + "accesstokens.gatehouse.dev"
	)
	for name, test := range map[string]struct {
		without []missingRight
		// says is what a line of the log says, and its hint.
		says, hint string
		// unready is what /readyz says, among others, if it is not ready.
		unready string
		// goesOn: the server uses the other custom resources all the same.
		goesOn bool
		// first: it runs before the others, which would do what it may not.
		first bool
	}{
		"policies-list": {
			without: []missingRight{{"admissionpolicies", "list"}, {"admissionpolicies", "watch"}},
			says:    `resource \"admissionpolicies\"`, hint: noPolicies, unready: noPolicies,
		},
		"policies-watch": {
			without: []missingRight{{"admissionpolicies", "watch"}},
			says:    `cannot watch resource \"admissionpolicies\"`, hint: noPolicies,
		},
		"tokens": {
			without: []missingRight{{"accesstokens", "list"}, {"accesstokens", "watch"}},
			says:    `resource \"accesstokens\"`, hint: noTokens, unready: noTokens, goesOn: true, // and ready half a minute after its start
		},
		"status": {
			without: []missingRight{{"admissionpolicies/status", "patch"}},
			says:    `cannot patch resource \"admissionpolicies/status\"`, hint: "patch of admissionpolicies/status", first: true,
		},
		"elections": {
			without: []missingRight{{"leases", "update"}, {"leases", "create"}},
			says:    "cannot take part in the election by Lease", hint: "must allow create, get and update of leases in coordination.k8s.io",
			unready: "has no caBundle", goesOn: true, // which only who is elected writes
		},
	} {
		t.Run(name, func(t *testing.T) {
			if !test.first {
				t.Parallel() // and so behind it
			}
			namespace := "rights-" + name
			must(t, w.CreateNamespace(t.Context(), namespace, nil))
			c := newResourceInstall(t, w, resourceOptions{namespace: namespace, name: "gatehouse-" + name, without: test.without, alone: true})
			ops := c.launched(t)
			fits := func(l *logLine) bool {
				return strings.Contains(l.text, test.says) && strings.Contains(l.Hint, test.hint)
			}
			c.logged(t, "the right", fits)
			support.Eventually(t, "what /readyz says", func() error {
				code, text, err := readyz(t.Context(), ops)
				switch {
				case err != nil:
					return err
				case test.unready == "" && code != http.StatusOK:
					return fmt.Errorf("not ready: %s", text)
				case test.unready != "" && (code == http.StatusOK || !strings.Contains(text, test.unready)):
					return fmt.Errorf("it says %d: %s", code, text)
				}
				return nil
			})
			n := 0
			for _, line := range c.lines(t) {
				if fits(&line) {
					n++
				}
			}
			if n > 1 {
				t.Errorf("it is told %d times", n)
			}
			if test.unready != "" && !test.goesOn {
				return
			}
			c.logged(t, "what is in use", func(l *logLine) bool {
				return l.Message == "configuration activated" && strings.Contains(l.text, `"profiles":1,"policies":1`)
			})
		})
	}
}
