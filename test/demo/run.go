package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// waitLimit bounds each line of the script, for a busy machine too. The control plane may take as long to start.
const waitLimit = 3 * time.Minute

// stage is what the steps are shown on: a directory, Gatehouse and a control
// plane. It is not safe for concurrent use.
type stage struct {
	dir    string // the working directory of all commands
	out    *transcript
	stderr io.Writer
	begin  time.Time

	gatehouse *cluster.Process
	address   string // where Gatehouse answers reviews, HOST:PORT
	ops       string // where its health and metrics are
	cluster   *cluster.Cluster
	token     string
	printed   string // by the last command
}

// newStage makes the directory, once it is sure that there are programs to run.
func newStage(root, gatehouse string, out *transcript, stderr io.Writer) (*stage, error) {
	gatehouse, err := filepath.Abs(gatehouse)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(gatehouse)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return nil, fmt.Errorf("there is no program %s (hint: run 'make build')", gatehouse)
	}
	assets, err := cluster.Assets()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "gatehouse-demo-")
	if err != nil {
		return nil, err
	}
	s := &stage{dir: dir, out: out, stderr: stderr, begin: time.Now()}
	err = errors.Join(
		writeDocuments(root, dir),
		os.Mkdir(s.path("bin"), 0o700),
		os.Symlink(gatehouse, s.path("bin/gatehouse")),
		os.Symlink(filepath.Join(assets, "kubectl"), s.path("bin/kubectl")),
	)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// close ends what runs and removes the directory. Nothing of it is kept, so
// nothing needs a chance to say goodbye.
func (s *stage) close() error {
	var errs []error
	if c := s.cluster; c != nil {
		errs = append(errs, c.APIServer().Kill(), c.Etcd().Kill(), c.Stop())
	}
	if s.gatehouse != nil {
		errs = append(errs, s.gatehouse.Kill())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

func (s *stage) path(name string) string { return filepath.Join(s.dir, filepath.FromSlash(name)) }

// progress tells a person who waits what is going on, and since when.
func (s *stage) progress(format string, args ...any) {
	// Progress only: the transcript is what matters.
	_, _ = fmt.Fprintf(s.stderr, "[%4.1fs] %s\n", time.Since(s.begin).Seconds(), fmt.Sprintf(format, args...))
}

// environment returns the environment of all commands. They neither read nor write anybody's own
// settings and cache, and speak English.
func (s *stage) environment() []string {
	return append(os.Environ(),
		"PATH="+s.path("bin")+string(os.PathListSeparator)+os.Getenv("PATH"),
		"KUBECONFIG="+s.path("kubeconfig"),
		"KUBECACHEDIR="+s.path("kubectl-cache"),
		"GATEHOUSE_TOKEN_STORE=file",
		"KUBERC=off",
		"LC_ALL=C",
	)
}

// show shows a line of the script, and checks what is expected of it.
func (s *stage) show(ctx context.Context, l line) error {
	ctx, cancel := context.WithTimeoutCause(ctx, waitLimit, fmt.Errorf("took longer than %s", waitLimit))
	defer cancel()
	replacer := s.replacer()
	l.text = replacer.Replace(l.text)
	for i := range l.doesNot {
		l.doesNot[i] = replacer.Replace(l.doesNot[i])
	}
	switch l.kind {
	case "#":
		s.out.note(l.text)
		return nil
	case "@":
		s.progress("waiting until %s…", l.text)
		if err := support.Poll(ctx, func() error { return s.waits()[l.text](ctx) }); err != nil {
			return fmt.Errorf("waiting until %s: %w", l.text, err)
		}
		return nil
	case "&":
		s.out.command(l.text)
		return s.start(ctx, strings.Fields(l.text))
	default:
		s.out.command(l.text)
		return s.must(ctx, l)
	}
}

// replacer replaces what the script has names for.
func (s *stage) replacer() *strings.Replacer {
	return strings.NewReplacer("TOKEN", s.token, "MISTYPED", mistyped(s.token), "ADDRESS", s.address, "OPS", s.ops)
}

// must runs a command line with the shell, shows what it prints, and checks that.
func (s *stage) must(ctx context.Context, l line) error {
	var text bytes.Buffer
	shell := s.shell(ctx, l.text)
	shell.Stdout, shell.Stderr = &text, &text
	shell.WaitDelay = time.Second // what the shell started may hold the pipe
	err := shell.Run()
	s.printed = text.String()
	s.out.output(s.printed)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return fmt.Errorf("$ %s\n%w", shorten(l.text), err)
	}
	problems := l.check(s.printed, shell.ProcessState.ExitCode())
	if len(problems) == 0 {
		return nil
	}
	return errors.New(shorten(fmt.Sprintf("$ %s\n  %s\n  it ended with %d and printed:\n%s",
		l.text, strings.Join(problems, "\n  "), shell.ProcessState.ExitCode(), indent(s.printed))))
}

// shell returns a command line in the working directory.
func (s *stage) shell(ctx context.Context, command string) *exec.Cmd {
	shell := exec.CommandContext(ctx, "sh", "-c", command) //nolint:gosec // the commands are those of the steps
	shell.Dir, shell.Env = s.dir, s.environment()
	return shell
}

func indent(text string) string {
	text = strings.TrimRight(text, "\n")
	return "    " + strings.ReplaceAll(text, "\n", "\n    ")
}

// logs returns the end of Gatehouse's log, for an error.
func (s *stage) logs() string {
	if s.gatehouse == nil {
		return ""
	}
	text, err := os.ReadFile(s.gatehouse.Log())
	if err != nil {
		return ""
	}
	const most = 15
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return "\nGatehouse's log ends with:\n" + indent(strings.Join(lines[max(0, len(lines)-most):], "\n"))
}

// writeKubeconfig writes a kubeconfig with two contexts: "demo", the current
// one, without any credentials, so that a token is what decides; and "admin".
func (s *stage) writeKubeconfig() error {
	admin := s.cluster.Config()
	config := clientcmdapi.NewConfig()
	config.Clusters["demo"] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: admin.CertData, ClientKeyData: admin.KeyData}
	config.Contexts["demo"] = &clientcmdapi.Context{Cluster: "demo", Namespace: namespace}
	config.Contexts["admin"] = &clientcmdapi.Context{Cluster: "demo", AuthInfo: "admin", Namespace: namespace}
	config.CurrentContext = "demo"
	return clientcmd.WriteToFile(*config, s.path("kubeconfig"))
}
