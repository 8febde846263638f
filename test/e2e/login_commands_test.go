package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// workstation is somebody's machine: programs, a kubeconfig and a cache of logins.
type workstation struct {
	*place
	// kubeconfig is what 'gatehouse kubeconfig' wrote, and cache where logins are kept.
	kubeconfig, cache string
	environment       []string
	// program is the one under test, and sentTo the file with the address that the browser was sent to.
	program, sentTo string
}

// newWorkstation makes a kubeconfig with this way to log in.
func (p *place) newWorkstation(t *testing.T, flags ...string) *workstation {
	t.Helper()
	program, err := gatehouse.Binary()
	must(t, err)
	dir := t.TempDir()
	programs, caches := filepath.Join(dir, "bin"), filepath.Join(dir, "caches")
	d := &workstation{
		place: p, kubeconfig: filepath.Join(dir, "kubeconfig"), cache: filepath.Join(caches, "gatehouse"),
		program: program, sentTo: filepath.Join(dir, "address"),
	}
	d.environment = []string{
		"PATH=" + programs + string(os.PathListSeparator) + os.Getenv("PATH"), "KUBECONFIG=" + d.kubeconfig, "KUBECACHEDIR=" + caches,
		"GATEHOUSE_TOKEN_STORE=file",
	}
	must(t, os.Mkdir(programs, 0o700))
	must(t, os.Symlink(program, filepath.Join(programs, "kubectl-gatehouse")))
	must(t, os.Symlink(program, filepath.Join(programs, "gatehouse")))
	// The browser writes down where it is sent.
	browser := fmt.Sprintf("#!/bin/sh\nprintf '%%s' \"$1\" >'%[1]s.partial' && mv '%[1]s.partial' '%[1]s'\n", d.sentTo)
	must(t, os.WriteFile(filepath.Join(programs, "xdg-open"), []byte(browser), 0o700))
	text, err := gatehouse.Run(t.Context(), append([]string{
		"kubeconfig", "--api-server", p.api.Config().Host, "--api-server-ca", p.api.CAFile(),
		"--server", "https://" + p.server.Reviews.String(), "--server-ca", p.path("ca.crt"),
	}, flags...)...)
	must(t, err)
	must(t, os.WriteFile(d.kubeconfig, []byte(text), 0o600))
	return d
}

// ran is what became of a command.
type ran struct {
	code           int
	stdout, stderr string
}

// outputs counts the files that the outputs of commands are kept in.
var outputs atomic.Uint32

// kubectl is kubectl with the person's own kubeconfig.
func (d *workstation) kubectl(t *testing.T, args ...string) *running {
	return d.begin(d.api.Kubectl(t.Context(), args...))
}

// gatehouse is a command of this program.
func (d *workstation) gatehouse(t *testing.T, args ...string) *running {
	return d.begin(exec.CommandContext(t.Context(), d.program, args...))
}

// running is a command that is about to run.
type running struct {
	desk    *workstation
	command *exec.Cmd

	stdout, stderr bytes.Buffer
}

func (d *workstation) begin(command *exec.Cmd) *running {
	r := &running{desk: d, command: command}
	command.Env = append(command.Environ(), d.environment...)
	command.Stdout, command.Stderr = &r.stdout, &r.stderr
	return r
}

// run runs the command to its end with this input.
func (r *running) run(t *testing.T, input string) ran {
	t.Helper()
	r.command.Stdin = strings.NewReader(input)
	must(t, r.command.Start())
	return r.wait(t)
}

// wait waits for the end, and keeps what was said for those who look for secrets.
func (r *running) wait(t *testing.T) ran {
	t.Helper()
	err := r.command.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	file := r.desk.path(fmt.Sprintf("command-%03d.log", outputs.Add(1)))
	must(t, os.WriteFile(file, append(r.stdout.Bytes(), r.stderr.Bytes()...), 0o600))
	return ran{r.command.ProcessState.ExitCode(), r.stdout.String(), r.stderr.String()}
}

// says wants a command to end with this code and to say this.
func (r ran) says(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("the exit code is %d, want %d:\n%s%s", r.code, code, r.stdout, r.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(r.stdout+r.stderr, text) {
			t.Errorf("nothing is said about %q:\n%s%s", text, r.stdout, r.stderr)
		}
	}
}

// logIn logs somebody in with a browser, by the kubeconfig.
func (d *workstation) logIn(t *testing.T, at *dexServer, who dexUser) {
	t.Helper()
	login := d.gatehouse(t, "login")
	must(t, login.command.Start())
	var address []byte
	support.Eventually(t, "a browser", func() error {
		var err error
		address, err = os.ReadFile(d.sentTo)
		return err
	})
	must(t, os.Remove(d.sentTo))
	page, err := at.Visit(t.Context(), string(address), who.Email, who.Password)
	if err != nil || !strings.Contains(page, "logged in") {
		t.Errorf("the browser shows %q, %v", page, err)
	}
	login.wait(t).says(t, 0, "logged in", at.Issuer())
}

// isKnownAs wants kubectl to be somebody, without a word from uncertified.
func (d *workstation) isKnownAs(t *testing.T, name string, groups ...string) {
	t.Helper()
	said := d.kubectl(t, "auth", "whoami", "--output=json").run(t, "")
	said.says(t, 0)
	var review authenticationv1.SelfSubjectReview
	must(t, json.Unmarshal([]byte(said.stdout), &review))
	want := fmt.Sprint(append(groups, "system:authenticated"))
	if got := review.Status.UserInfo; got.Username != name || fmt.Sprint(got.Groups) != want {
		t.Errorf("kubectl is %s in %s, want %s in %s", got.Username, got.Groups, name, want)
	}
	d.gatehouse(t, "whoami").run(t, "").says(t, 0, "user        "+name)
}

// isNobody wants kubectl to fail, because nobody is logged in and there is no terminal.
func (d *workstation) isNobody(t *testing.T) {
	t.Helper()
	d.kubectl(t, "auth", "whoami").run(t, "").says(t, 1, "gatehouse login")
	d.gatehouse(t, "whoami").run(t, "").says(t, 2, "gatehouse login")
}

// isPrivate wants nobody but the owner to be able to look at what is kept, and notes it as secret.
func (d *workstation) isPrivate(t *testing.T) {
	t.Helper()
	files := 0
	must(t, filepath.WalkDir(d.cache, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %s", path, info.Mode())
		}
		if err == nil && info.Mode().IsRegular() && info.Size() > 0 {
			files++
			err = d.noteTokens(path)
		}
		return err
	}))
	if files == 0 {
		t.Errorf("nothing is kept in %s", d.cache)
	}
}

var tokenText = regexp.MustCompile(`[A-Za-z0-9_-]{20,}(\.[A-Za-z0-9_-]{20,})*`)

// noteTokens notes what looks like a token in a file of the cache.
func (d *workstation) noteTokens(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var kept map[string]any
	err = json.Unmarshal(content, &kept)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for name, value := range kept {
		text, ok := value.(string)
		if ok && strings.Contains(strings.ToLower(name), "token") && tokenText.MatchString(text) {
			d.jwt("." + strings.TrimPrefix(text, "gatehouse-login_"))
		}
	}
	return nil
}

// People log in once and use kubectl.
func (p *place) testCommands(t *testing.T) {
	t.Run("name and password", func(t *testing.T) {
		t.Parallel()
		d := p.newWorkstation(t, "--username", "kate")
		d.isNobody(t)
		password := p.directory.passwords["kate"] + "\n"
		d.gatehouse(t, "login", "--password-stdin").run(t, p.secret("not-"+password)).says(t, 1, "wrong")
		d.gatehouse(t, "login", "--password-stdin").run(t, password).says(t, 0, "logged in", "ldap:kate")
		d.isKnownAs(t, "ldap:kate")
		d.isPrivate(t)
		d.kubectl(t, "gatehouse", "whoami").run(t, "").says(t, 0, "ldap:kate")
		d.gatehouse(t, "logout").run(t, "").says(t, 0, "1 login deleted")
		d.isNobody(t)
		d.kubectl(t, "gatehouse", "login", "--password-stdin").run(t, password).says(t, 0, "ldap:kate")
		d.isKnownAs(t, "ldap:kate")
	})

	atIssuer := func(t *testing.T, more ...string) *workstation {
		t.Helper()
		authority := filepath.Join(t.TempDir(), "dex.crt")
		must(t, os.WriteFile(authority, p.issuer.CertPEM(), 0o600))
		return p.newWorkstation(t, append([]string{
			"--issuer", p.issuer.Issuer(), "--issuer-ca", authority, "--client-id", dexClient,
			"--issuer-scope", "email", "--issuer-scope", "groups", "--issuer-scope", "profile", "--issuer-scope", "offline_access",
		}, more...)...)
	}

	t.Run("browser", func(t *testing.T) {
		t.Parallel()
		d := atIssuer(t)
		d.isNobody(t)
		d.logIn(t, p.issuer, p.jane)
		d.isKnownAs(t, "dex:jane@example.org", "dex:dev", "dex:eng")
		d.isPrivate(t)
	})

	t.Run("two accounts", func(t *testing.T) {
		t.Parallel()
		d := atIssuer(t, "--account", p.jane.Email)
		d.logIn(t, p.issuer, p.jane)
		d.isKnownAs(t, "dex:jane@example.org", "dex:dev", "dex:eng")
		d.gatehouse(t, "login", "--account", p.rick.Email).run(t, "").says(t, 2, "the context logs in with the account")
		d.gatehouse(t, "logout", "--account", p.jane.Email).run(t, "").says(t, 0, "1 login deleted")
		login := d.gatehouse(t, "login")
		must(t, login.command.Start())
		var address []byte
		support.Eventually(t, "a browser", func() (err error) {
			address, err = os.ReadFile(d.sentTo)
			return err
		})
		page, err := p.issuer.Visit(t.Context(), string(address), p.rick.Email, p.rick.Password)
		if err != nil || !strings.Contains(page, "you logged in as") {
			t.Errorf("the browser shows %q, %v", page, err)
		}
		login.wait(t).says(t, 1, "and not with the account")
		d.isNobody(t)
	})

	t.Run("another device", func(t *testing.T) {
		t.Parallel()
		d := atIssuer(t, "--device")
		shown := regexp.MustCompile(regexp.QuoteMeta(p.issuer.Issuer()) + `/device\?user_code=\S+`)
		login := d.gatehouse(t, "login")
		remarks, shows := io.Pipe()
		login.command.Stderr = io.MultiWriter(&login.stderr, shows)
		must(t, login.command.Start())
		address := ""
		for lines := bufio.NewScanner(remarks); address == "" && lines.Scan(); {
			address = shown.FindString(lines.Text())
		}
		go io.Copy(io.Discard, remarks) //nolint:errcheck // what follows is of no interest here
		_, err := p.issuer.Visit(t.Context(), address, p.jane.Email, p.jane.Password)
		must(t, err)
		login.wait(t).says(t, 0, "logged in", p.issuer.Issuer())
		d.isKnownAs(t, "dex:jane@example.org", "dex:dev", "dex:eng")
		d.isPrivate(t)
	})

	t.Run("why a token is refused", func(t *testing.T) {
		t.Parallel()
		p := p.fromNewAddress(t)
		d := p.newWorkstation(t, "--username", "kate")
		good := p.grant(t, "good", "--user", "robot")
		wrong, _ := p.issueUnknown(t, "good")
		for _, test := range []struct {
			name, token string
			code        int
			says        []string
		}{
			{"it is not", good, 0, []string{"robot", "access-token"}},
			{"wrong secret", wrong, 2, []string{"unknown-id"}},
			{"foreign", p.idToken(t, p.foreign, dexClient, p.jane), 1, []string{"no: foreign"}},
			{"reserved group", p.idToken(t, p.plain, dexClient, p.master), 1, []string{"no: guard", "system:masters"}},
		} {
			t.Run(test.name, func(t *testing.T) {
				d.gatehouse(t, "whoami", "--kubeconfig", d.kubeconfig, "--token-file", "-").run(t, test.token).says(t, test.code, test.says...)
			})
		}
	})
}
