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

const (
	// waitLimit bounds each command, and each wait for something that takes a second
	// at most, so that on a busy machine it is not the clock that fails.
	waitLimit = 30 * time.Second
)

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

	err error // what failed first; nothing is done after it
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

// output is what became of a command.
type output struct {
	command string
	text    string // of both streams
	code    int
}

// do does something, unless something failed before. What fails first is s.err.
func (s *stage) do(action func() error) {
	if s.err == nil {
		s.err = action()
	}
}

// note says what the next command is for.
func (s *stage) note(text string) {
	if s.err == nil {
		s.out.note(text)
	}
}

// must runs a command line with the shell, shows it together with what it prints,
// and checks that.
func (s *stage) must(ctx context.Context, command string, expectations ...expectation) {
	s.do(func() error {
		ctx, cancel := context.WithTimeoutCause(ctx, waitLimit, fmt.Errorf("took longer than %s", waitLimit))
		defer cancel()
		s.out.command(command)
		var text bytes.Buffer
		shell := s.shell(ctx, command)
		shell.Stdout, shell.Stderr = &text, &text
		shell.WaitDelay = time.Second // what the shell started may hold the pipe
		err := shell.Run()
		s.out.output(text.String())
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
			return fmt.Errorf("$ %s\n%w", shorten(command), err)
		}
		return output{command: command, text: text.String(), code: shell.ProcessState.ExitCode()}.check(expectations...)
	})
}

// shell returns a command line in the working directory.
func (s *stage) shell(ctx context.Context, command string) *exec.Cmd {
	shell := exec.CommandContext(ctx, "sh", "-c", command) //nolint:gosec // the commands are those of the steps
	shell.Dir, shell.Env = s.dir, s.environment()
	return shell
}

// expectation returns what is wrong with an output, or nothing.
type expectation func(output) string

// succeeds expects that the command did what it was told.
func succeeds(o output) string {
	if o.code != 0 {
		return fmt.Sprintf("its exit code is %d, and must be 0", o.code)
	}
	return ""
}

// fails expects that the command did not do it.
func fails(o output) string {
	if o.code == 0 {
		return "it must fail, and does not"
	}
	return ""
}

// prints expects texts in the output. Spaces stand for any number of spaces.
func prints(texts ...string) expectation {
	return func(o output) string {
		var missing []string
		for _, text := range texts {
			if !strings.Contains(fold(o.text), fold(text)) {
				missing = append(missing, fmt.Sprintf("%q", text))
			}
		}
		if len(missing) > 0 {
			return "its output must have, and has not: " + strings.Join(missing, ", ")
		}
		return ""
	}
}

// lacks expects that a text is not in the output.
func lacks(text string) expectation {
	return func(o output) string {
		if strings.Contains(fold(o.text), fold(text)) {
			return fmt.Sprintf("its output must not have %q", text)
		}
		return ""
	}
}

func fold(text string) string { return strings.Join(strings.Fields(text), " ") }

// check reports everything that is not as expected.
func (o output) check(expectations ...expectation) error {
	var problems []string
	for _, expect := range expectations {
		if problem := expect(o); problem != "" {
			problems = append(problems, "\n  "+problem)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	printed := " nothing"
	if o.text != "" {
		printed = ":\n" + indent(shorten(o.text))
	}
	return fmt.Errorf("$ %s%s\n  it printed%s", shorten(o.command), strings.Join(problems, ""), printed)
}

func indent(text string) string {
	text = strings.TrimRight(text, "\n")
	return "    " + strings.ReplaceAll(text, "\n", "\n    ")
}

// until asks again and again, until there is no error any more. It is for what
// takes effect some time after it was done.
func (s *stage) until(ctx context.Context, what string, ask func(context.Context) error) {
	s.do(func() error {
		ctx, cancel := context.WithTimeoutCause(ctx, waitLimit, fmt.Errorf("gave up after %s", waitLimit))
		defer cancel()
		s.progress("waiting until %s…", what)
		err := support.Poll(ctx, func() error { return ask(ctx) })
		if err != nil {
			return fmt.Errorf("waiting until %s: %w", what, err)
		}
		return nil
	})
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
