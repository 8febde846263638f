package incluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
	"github.com/gatehouse-dev/gatehouse/test/support/load"
)

// recorded is a review as record show prints it.
type recorded struct {
	ID, Endpoint, Decision, Kind, Namespace, Name, User, Replica string
}

// recorder is a user who fetches recordings.
type recorder struct {
	site *site
	// dir is the directory of the recording, and kubeconfig names a user.
	dir, kubeconfig string
}

// recorder returns a user with these rights in the namespace of the install, given as a list of "verb resource".
func (s *site) recorder(t *testing.T, name string, rights ...string) *recorder {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, right := range rights {
		verb, resource, _ := strings.Cut(right, " ")
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{verb}})
	}
	_, err := s.Client().RbacV1().Roles(system).Create(t.Context(), role, metav1.CreateOptions{})
	must(t, err)
	_, err = s.Client().RbacV1().RoleBindings(system).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	must(t, err)
	config, err := s.ConfigFor(name)
	must(t, err)
	r := &recorder{site: s, dir: t.TempDir(), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	must(t, cluster.WriteKubeconfig(r.kubeconfig, config.Host, config.CAData, config.CertData, config.KeyData))
	return r
}

// get runs record get, and returns the exit code and what it prints.
func (r *recorder) get(t *testing.T) (code int, stdout, stderr string) {
	t.Helper()
	return runProgram(t, "record", "get", "--kubeconfig", r.kubeconfig, "-n", system, "-d", r.dir)
}

// reviews returns those in the directory.
func (r *recorder) reviews(t *testing.T) (reviews []recorded) {
	t.Helper()
	code, stdout, stderr := runProgram(t, "record", "show", r.dir, "-o", "json")
	if code != 0 || stderr != "" {
		t.Fatalf("record show: exit code %d: %s", code, stderr)
	}
	for line := range strings.Lines(stdout) {
		var one recorded
		must(t, json.Unmarshal([]byte(line), &one))
		reviews = append(reviews, one)
	}
	return reviews
}

// runProgram runs a command of the program.
func runProgram(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	binary, err := gatehouse.Binary()
	must(t, err)
	var out, remarks bytes.Buffer
	command := exec.CommandContext(t.Context(), binary, args...)
	command.Stdout, command.Stderr = &out, &remarks
	err = command.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), out.String(), remarks.String()
}

// recordedBy returns how many reviews each replica has recorded.
func (s *site) recordedBy(ctx context.Context) (map[string]int, error) {
	counts := map[string]int{}
	for _, pod := range s.kubelet.Pods() {
		n, err := metric(ctx, pod, `gatehouse_record_reviews_total`)
		if err != nil {
			return nil, err
		}
		counts[pod.Name] = int(n)
	}
	return counts, nil
}

// createRecorded sends requests until every replica has recorded some. It returns what the API server has answered, by the name
// of the object: whether it would be created.
func (s *site) createRecorded(t *testing.T) map[string]bool {
	t.Helper()
	const callers, least = 32, 10
	client, err := rest.HTTPClientFor(s.Config())
	must(t, err)
	client.Timeout = deadline
	created, rounds := map[string]bool{}, 0
	var mu sync.Mutex
	before, err := s.recordedBy(t.Context())
	must(t, err)
	support.Eventually(t, "every replica has recorded some reviews", func() error {
		var group sync.WaitGroup
		first := rounds * callers
		rounds++
		failures := make([]error, callers)
		for i := range callers {
			group.Go(func() {
				request := requests()[i%len(requests())]
				name := fmt.Sprintf("recorded-%04d", first+i)
				// Nothing is created, so that no controller sends requests of its own.
				object := strings.Replace(request.object, `"name":"load"`, `"name":"`+name+`"`, 1)
				answer, err := load.Create(t.Context(), client, s.Config().Host+request.path+"?dryRun=All", object)
				mu.Lock()
				defer mu.Unlock()
				if failures[i] = request.check(answer, err); failures[i] == nil {
					created[name] = err == nil
				}
			})
		}
		group.Wait()
		now, err := s.recordedBy(t.Context())
		if err = errors.Join(append(failures, err)...); err != nil {
			return err
		}
		for pod, n := range now {
			if n < before[pod]+least {
				return fmt.Errorf("the replica %s has recorded %d", pod, n-before[pod])
			}
		}
		return nil
	})
	return created
}

// TestRecordGet fetches what three replicas have recorded of requests to a real API server, through its port-forward and with
// the rights of a user, and replays it.
func TestRecordGet(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, err := s.helm(t.Context(), t.TempDir(), "install", "gatehouse", chart, "--namespace", system, "--create-namespace", "--set", "replicaCount=3,recording.enabled=true")
	must(t, err)
	s.rolledOut(t)
	s.waitForReplicas(t, 3)
	s.createWorkloads(t)
	created := s.createRecorded(t)

	// These are the rights that docs/tasks/record-requests.md names.
	r := s.recorder(t, "fetcher", "list pods", "create pods/portforward")
	t.Run("all of three replicas", func(t *testing.T) {
		reviews := s.fetchAll(t, r)
		checkReviews(t, reviews, created)
		code, stdout, stderr := r.get(t)
		if want := fmt.Sprintf(`^%s: \d+ segments of 3 replicas, \S+ MiB\n$`, regexp.QuoteMeta(r.dir)); code != 0 || stderr != "" || !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("exit code %d, standard output %q, standard error %q, want %s alone", code, stdout, stderr, want)
		}
		entries, err := os.ReadDir(r.dir)
		must(t, err)
		for _, entry := range entries {
			info, err := entry.Info()
			must(t, err)
			if info.Mode().Perm() != 0o600 || !strings.HasSuffix(entry.Name(), ".gatehouse.zst") {
				t.Errorf("there is a file %s with the mode %v", entry.Name(), info.Mode())
			}
		}
	})
	t.Run("it is replayed", func(t *testing.T) { checkReplay(t, r.dir, r.reviews(t)) })
}

// fetchAll fetches until nothing is missing that was recorded before, and returns the reviews.
func (s *site) fetchAll(t *testing.T, r *recorder) (reviews []recorded) {
	t.Helper()
	support.Eventually(t, "everything is on the disks of the replicas, and the rights of the user are active", func() error {
		before, err := s.recordedBy(t.Context())
		if err != nil {
			return err
		}
		code, _, stderr := r.get(t)
		if code != 0 || stderr != "" {
			return fmt.Errorf("exit code %d: %s", code, stderr)
		}
		reviews = r.reviews(t)
		found := map[string]int{}
		for i := range reviews {
			found[reviews[i].Replica]++
		}
		if !maps.Equal(found, before) {
			return fmt.Errorf("there are %v reviews, and were %v", found, before)
		}
		return nil
	})
	return reviews
}

// checkReviews checks that each review is there once, with what was answered.
func checkReviews(t *testing.T, reviews []recorded, created map[string]bool) {
	t.Helper()
	seen, found := map[string]bool{}, map[string]bool{}
	for i := range reviews {
		one := &reviews[i]
		if seen[one.ID] {
			t.Errorf("the review %s is there twice", one.ID)
		}
		seen[one.ID] = true
		allowed, mine := created[one.Name]
		if mine {
			found[one.Name] = true
		}
		if mine && one.Endpoint == "validate" && (one.Decision == "allowed") != allowed {
			t.Errorf("%s is %s, and the API server has created it: %v", one.Name, one.Decision, allowed)
		}
	}
	if len(found) != len(created) {
		t.Errorf("%d of %d requests are in the recording", len(found), len(created))
	}
}

// checkReplay replays a recording under the configurations that are beside it, and under a candidate.
func checkReplay(t *testing.T, dir string, reviews []recorded) {
	t.Helper()
	var report struct {
		Reviews, Unchanged int
		Undecided, Changed map[string]int
		Problems           []string
	}
	// Nobody decides on the objects that createWorkloads makes.
	const own = "it is about an object of Gatehouse itself, which no policy decides on"
	code, stdout, stderr := runProgram(t, "replay", "-o", "json", dir)
	must(t, json.Unmarshal([]byte(stdout), &report))
	if code != 0 || report.Reviews != len(reviews) || report.Unchanged+report.Undecided[own] != report.Reviews || len(report.Problems) > 0 {
		t.Errorf("under the same configuration: exit code %d, %+v: %s", code, report, stderr)
	}
	candidate := t.TempDir()
	must(t, os.WriteFile(filepath.Join(candidate, "candidate.yaml"), []byte(strings.ReplaceAll(workloadPolicies, "replicas <= 5", "replicas <= 4")), 0o600))
	refused := 0
	for i := range reviews {
		if reviews[i].Kind == "Deployment.apps" && reviews[i].Decision == "allowed" {
			refused++
		}
	}
	report.Undecided = nil
	code, stdout, stderr = runProgram(t, "replay", "--config", candidate, "-n", shop, "--kind", "Deployment", "-o", "json", dir)
	must(t, json.Unmarshal([]byte(stdout), &report))
	if code != 1 || refused == 0 || report.Changed["newly-refused"] != refused || len(report.Undecided) > 0 {
		t.Errorf("under a candidate: exit code %d, %+v, want %d newly refused: %s", code, report, refused, stderr)
	}
	if code, stdout, stderr = runProgram(t, "record", "show", dir, "--decision", "denied", "--kind", "Deployment", "-n", shop); code != 0 || !strings.Contains(stdout, "recorded-0003") || strings.Contains(stdout, "recorded-0002") {
		t.Errorf("record show: exit code %d, %s%s", code, stdout, stderr)
	}
}
