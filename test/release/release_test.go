// Package release installs Gatehouse as a stranger does: from a directory that holds only what "make release" wrote, with helm,
// kubectl and krew, on a real API server whose pods run the program of the image. testdata/script is what the stranger types.
//
// "make test-release" makes two releases first. Both are of these files, with different versions.
package release

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/container"
	"github.com/gatehouse-dev/gatehouse/test/support/kubelet"
	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
)

func TestMain(m *testing.M) {
	container.Enter()
	os.Exit(cluster.RunInNamespace(m))
}

// TestInstall runs the scripts. In a script, OLD and NEW are the versions, old and new directories with their releases, and
// REGISTRY is a registry without anything in it.
func TestInstall(t *testing.T) {
	if !cluster.Namespaced() {
		t.Fatal("a network namespace is needed, in which pods have addresses (hint: allow unprivileged user namespaces, or run as root)")
	}
	s := newSite(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: s.setUp,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"node": s.node, "proxy": s.proxy, "confined": s.confined,
		},
	})
}

// TestPages has the tasks about installing show commands of the script, in its order.
func TestPages(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("testdata/script/install.txtar")
	must(t, err)
	run := strings.NewReplacer("exec ", "", "$REGISTRY", "registry.example", "$OLD", "0.1.0", "$NEW", "0.1.0", "${NEW}", "0.1.0", "${ARCH}", "amd64").Replace(string(script))
	for page, want := range map[string]int{"install": 7, "install-with-kubectl": 4, "install-the-command": 3} {
		text, err := os.ReadFile(filepath.Join("../../docs/tasks", page+".md"))
		must(t, err)
		rest, commands := run, 0
		for _, block := range regexp.MustCompile("(?s)\n```sh \\w+\n(.*?)```").FindAllStringSubmatch(strings.ReplaceAll(string(text), "\\\n  ", ""), -1) {
			for line := range strings.Lines(block[1]) {
				commands++
				var found bool
				line = strings.TrimSpace(line)
				if _, rest, found = strings.Cut(rest, "\n"+line); !found {
					t.Fatalf("%s: the script does not run this, or not in this place:\n%s", page, line)
				}
				// The end of the line may have more flags.
				rest = "\n" + rest
			}
		}
		if commands != want {
			t.Errorf("%s has %d commands, want %d", page, commands, want)
		}
	}
}

// site is a cluster, and a registry that it has images from.
type site struct {
	t        *testing.T
	cluster  *cluster.Cluster
	registry string
	kubelet  *kubelet.Kubelet
	// programs are what a stranger has, by name.
	programs map[string]string
	old, new string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, cluster: cluster.New(t, cluster.Options{ControllerManager: true})}
	s.programs = map[string]string{"kubectl": s.cluster.Kubectl(t.Context()).Path}
	for _, name := range []string{"helm", "krew"} {
		path, err := support.Built("installers", "installers", name)
		must(t, err)
		s.programs[name] = path
	}
	// As krew installs itself.
	s.programs["kubectl-krew"] = s.programs["krew"]
	crane, err := support.Built("test-release", "crane")
	must(t, err)
	s.programs["crane"] = crane
	changelog, err := os.ReadFile("../../CHANGELOG.md")
	must(t, err)
	newest := regexp.MustCompile(`(?m)^## ([0-9.]+) \(`).FindStringSubmatch(string(changelog))
	if newest == nil {
		t.Fatal("CHANGELOG.md has no version")
	}
	s.old, s.new = newest[1]+"-rc.1", newest[1]

	s.registry, err = cluster.UnusedAddress("127.0.0.1")
	must(t, err)
	served := cluster.NewProcess(cluster.ProcessOptions{
		Path: crane, Args: []string{"registry", "serve", "--address", s.registry}, Log: filepath.Join(t.TempDir(), "registry.log"), Ready: cluster.Started,
	})
	must(t, served.Start(t.Context()))
	t.Cleanup(func() { _ = served.Kill() })
	support.Eventually(t, "the registry answers", func() error {
		return exec.CommandContext(t.Context(), crane, "catalog", s.registry).Run()
	})
	return s
}

// setUp gives a script the programs, and the releases, of which it gets copies.
func (s *site) setUp(env *testscript.Env) error {
	bin, home := filepath.Join(env.WorkDir, "bin"), filepath.Join(env.WorkDir, "home")
	for _, dir := range []string{bin, home} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	for name, path := range s.programs {
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	for dir, version := range map[string]string{"old": s.old, "new": s.new} {
		made, err := support.Built("test-release", "test-release", "v"+version)
		if err != nil {
			return err
		}
		if err := os.CopyFS(filepath.Join(env.WorkDir, dir), os.DirFS(made)); err != nil {
			return err
		}
	}
	for name, value := range map[string]string{
		"PATH": strings.Join([]string{bin, filepath.Join(home, ".krew", "bin"), env.Getenv("PATH")}, string(os.PathListSeparator)),
		"HOME": home, "KUBECONFIG": s.cluster.Kubeconfig(), "REGISTRY": s.registry, "OLD": s.old, "NEW": s.new, "ARCH": runtime.GOARCH,
		"LC_ALL": "C",
	} {
		env.Setenv(name, value)
	}
	return nil
}

// node starts a node that has unpacked images of the registry: node REFERENCE… The layers of each are in $WORK/images/TAG.
func (s *site) node(ts *testscript.TestScript, _ bool, references []string) {
	images := map[string]kubelet.Image{}
	for _, reference := range references {
		var config struct {
			Config struct{ Entrypoint, Env []string }
		}
		platform := "linux/" + runtime.GOARCH
		ts.Check(json.Unmarshal(s.crane(ts, "config", "--platform", platform, reference), &config))
		dir := filepath.Join(ts.Getenv("WORK"), "images", reference[strings.LastIndex(reference, ":")+1:])
		ts.Check(os.MkdirAll(dir, 0o755))
		layers := dir + ".tar"
		s.crane(ts, "export", "--platform", platform, reference, layers)
		ts.Check(exec.Command("tar", "--extract", "--no-same-owner", "--file", layers, "--directory", dir).Run())
		images[reference] = kubelet.Image{Dir: dir, Entrypoint: config.Config.Entrypoint, Env: config.Config.Env}
	}
	var log logbuffer.Buffer
	var err error
	s.kubelet, err = kubelet.Start(s.t.Context(), kubelet.Options{Cluster: s.cluster, Namespace: "gatehouse-system", Images: images, Dir: filepath.Join(ts.Getenv("WORK"), "node"), Log: &log})
	ts.Check(err)
	ts.Defer(func() {
		s.kubelet.Stop()
		if !s.t.Failed() {
			return
		}
		s.t.Logf("the node:\n%s", log.String())
		for _, p := range s.kubelet.Pods() {
			text, _ := os.ReadFile(p.Log())
			s.t.Logf("pod %s logged, at the end:\n%s", p.Name, text[max(0, len(text)-8<<10):])
		}
	})
}

// proxy makes the cluster IP of the Service reachable for pods.
func (s *site) proxy(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Check(s.kubelet.Proxy(s.t.Context(), "gatehouse-system", "gatehouse"))
}

func (s *site) crane(ts *testscript.TestScript, args ...string) []byte {
	var problems strings.Builder
	command := exec.Command(s.programs["crane"], args...)
	command.Stderr = &problems
	output, err := command.Output()
	if err != nil {
		ts.Fatalf("crane %s: %v: %s", args[0], err, problems.String())
	}
	return output
}

// confined waits until pods run this program alone, byte for byte: confined PROGRAM. Its user is one that the image does not know,
// has no capabilities, and can write nothing.
func (s *site) confined(ts *testscript.TestScript, _ bool, args []string) {
	want, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Check(support.Poll(s.t.Context(), func() error {
		running := 0
		for _, pod := range s.kubelet.Pods() {
			if !isRunning(pod) {
				continue
			}
			running++
			if err := checkConfined(pod, want); err != nil {
				return fmt.Errorf("pod %s: %w", pod.Name, err)
			}
		}
		if running < 2 {
			return fmt.Errorf("%d pods run, want both replicas at least", running)
		}
		return nil
	}))
}

// isRunning reports whether the process of a pod has begun, and has not ended, as that of a Job.
func isRunning(pod *kubelet.Pod) bool {
	process := pod.Process()
	if process == nil {
		return false
	}
	select {
	case <-process.Exited():
		return false
	default:
		return true
	}
}

// checkConfined returns an error unless a pod runs a program as confined says.
func checkConfined(pod *kubelet.Pod, program []byte) error {
	proc := fmt.Sprintf("/proc/%d", pod.Process().PID())
	got, err := os.ReadFile(proc + "/exe")
	if err != nil {
		return err
	}
	if !bytes.Equal(got, program) {
		return errors.New("it runs another program")
	}
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		return err
	}
	for _, line := range []string{fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", visible(kubelet.UID)), "CapPrm:\t0000000000000000\n", "NoNewPrivs:\t1\n"} {
		if !strings.Contains(string(status), line) {
			return fmt.Errorf("want %q of\n%s", line, status)
		}
	}
	mounts, err := os.ReadFile(proc + "/mountinfo")
	if err != nil {
		return err
	}
	root := false
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		at, options := fields[4], fields[5]
		root = root || at == "/"
		if !strings.HasPrefix(at, "/proc") && !strings.HasPrefix(at, "/sys") && !strings.HasPrefix(options, "ro,") {
			return fmt.Errorf("it can write: %s", line)
		}
	}
	if !root {
		return fmt.Errorf("it has no root of its own:\n%s", mounts)
	}
	return nil
}

// visible is a user of a container as this process sees it: without root, itself.
func visible(uid int) int {
	if os.Getuid() == 0 {
		return uid
	}
	return os.Getuid()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
