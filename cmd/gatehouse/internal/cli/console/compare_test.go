package console

import (
	"context"
	"html"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const secretObject = `apiVersion: v1
kind: Secret
metadata: {name: s, namespace: shop, annotations: {kubectl.kubernetes.io/last-applied-configuration: "HUNTER2"}}
data: {password: SFVOVEVSMg==}
`

// commit makes a repository with a configuration in the directory "config", and returns its path and that of the configuration.
func commit(t *testing.T, files map[string]string) (top, dir string) {
	t.Helper()
	top = t.TempDir()
	dir = filepath.Join(top, "config")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@a.example", "commit", "-q", "-m", "first"}} {
		command := exec.Command("git", append([]string{"-C", top, "-c", "core.hooksPath=" + os.DevNull, "-c", "commit.gpgSign=false"}, args...)...)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	if err := os.Remove(filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	return top, dir
}

func compareURL(from, to string) string {
	return "/compare?" + url.Values{"from": {from}, "to": {to}}.Encode()
}

func TestCompareRevision(t *testing.T) {
	t.Parallel()
	_, dir := commit(t, map[string]string{"policy.yaml": strict, "same.yaml": strings.Replace(strict, "name: labels", "name: same", 1), "gone.yaml": strings.Replace(strict, "name: labels", "name: gone", 1), "secret.yaml": secretObject})
	for name, text := range map[string]string{
		"policy.yaml": refusing(), "same.yaml": "# a comment\n" + strings.Replace(strict, "name: labels", "name: same", 1), "new.yaml": strings.Replace(strict, "name: labels", "name: new", 1),
		"secret.yaml": strings.Replace(secretObject, "SFVOVEVSMg==", "SFVOVEVSMw==", 1),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "gone.yaml")); err != nil {
		t.Fatal(err)
	}
	c := newPolicyConsole(t, flags{config: dir})
	_, _, text := c.get("GET", "/compare", nil)
	c.wants(text, "From")
	_, page, _ := c.get("GET", "/compare", nil)
	c.wants(page, `value="git:HEAD:config"`, `value="dir:`+dir+`"`)
	status, page, text := c.get("GET", compareURL("git:HEAD:config", "dir:"+dir), nil)
	if status != http.StatusOK {
		t.Fatal(status, text)
	}
	c.wants(html.UnescapeString(text), "1 added, 1 removed, 2 changed, 1 unchanged", "removed AdmissionPolicy gone", "added AdmissionPolicy new", "changed AdmissionPolicy labels", `request.userInfo.username == "ann"`,
		"changed Secret shop/s Only values that are hidden differ", "What lint finds in git:HEAD:config", "gatehouse lint --config")
	for _, bad := range []string{"HUNTER", "SFVOVEVS", "root:", c.work} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	c.wantsNoFiles()
}

func TestCompareRefuses(t *testing.T) {
	t.Parallel()
	top, dir := commit(t, map[string]string{"policy.yaml": strict})
	c := newPolicyConsole(t, flags{config: dir})
	outside := writeFiles(t, map[string]string{"policy.yaml": strict})
	link := filepath.Join(dir, "outside")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		side   string
		status int
		want   string
	}{
		"an option as revision":     {"git:--output=" + filepath.Join(top, "written") + ":config", 404, "there is no revision"},
		"a revision that is not":    {"git:nope:config", 404, "there is no revision"},
		"a path above":              {"git:HEAD:../../etc", 400, "is not a path in the repository"},
		"a path that is not":        {"git:HEAD:nope", 404, "there is no directory"},
		"an option as path":         {"git:HEAD:--output=x", 404, "there is no directory"},
		"no path":                   {"git:HEAD", 400, "git:REVISION:PATH"},
		"a directory of the system": {"dir:/etc", 404, "is not a directory below"},
		"a directory above":         {"dir:" + dir + "/../..", 404, "is not a directory below"},
		"a link to a directory":     {"dir:" + link, 404, "is not a directory below"},
		"no cluster":                {"cluster", 400, "no cluster is shown"},
		"no recording":              {"recorded", 400, "there is no recording to replay"},
		"a word":                    {"nope", 400, "is no configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &policyConsole{c.console, t}
			status, _, text := c.get("GET", compareURL("dir:"+dir, tc.side), nil)
			if status != tc.status || !strings.Contains(text, tc.want) {
				t.Errorf("%d: %s", status, text)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(top, "written")); err == nil {
		t.Error("git has written a file")
	}
	c.wantsNoFiles()
}

func TestCompareRecorded(t *testing.T) {
	t.Parallel()
	recording := writeRecording(t, strict, "web", "job")
	dir := writeFiles(t, map[string]string{"policy.yaml": refusing()})
	c := newPolicyConsole(t, flags{config: dir, recordings: []string{recording}})
	status, _, text := c.get("GET", compareURL("recorded", "dir:"+dir), nil)
	if status != http.StatusOK {
		t.Fatal(status, text)
	}
	c.wants(html.UnescapeString(text), "0 added, 0 removed, 1 changed, 0 unchanged", "gatehouse replay --config "+dir+" --against recorded "+recording)
	_, page, _ := c.get("POST", "/compare", url.Values{"from": {"recorded"}, "to": {"dir:" + dir}})
	c.wants(c.waitForJob(page), "2 reviews", "newly refused2", "Pod/job, Pod/web")
	_, page, _ = c.get("POST", "/compare", url.Values{"from": {"dir:" + dir}, "to": {"dir:" + dir}})
	c.wants(c.waitForJob(page), "No answer differs")
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	s := &side{Name: "dir:x", isRaw: true, dir: writeFiles(t, map[string]string{
		"list.yaml": "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n",
		"odd.yaml":  "# nothing\n---\n- 1\n---\na: [\n",
	})}
	found, err := s.documents(false)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []documentKey{{"", "ConfigMap", "", "a"}, {"", "ConfigMap", "", "a (2)"}, {"", "document", "", "1 of odd.yaml"}, {"", "document", "", "2 of odd.yaml"}} {
		if _, known := found[key]; !known {
			t.Errorf("%s is missing in %v", key, found)
		}
	}
	if d := found[documentKey{"", "document", "", "2 of odd.yaml"}]; strings.Contains(string(d.shown()), "[") {
		t.Error("a document that cannot be read is shown: it may be a Secret")
	}
}

func TestGitFetchesNothing(t *testing.T) {
	t.Parallel()
	_, dir := commit(t, map[string]string{"policy.yaml": strict})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := repositoryOf(ctx, dir); err == nil {
		t.Error("it does not end with its context")
	}
	if _, _, err := repositoryOf(t.Context(), t.TempDir()); err == nil {
		t.Error("a directory without a repository")
	}
}
