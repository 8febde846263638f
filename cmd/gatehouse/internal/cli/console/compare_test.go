package console

import (
	"html"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const secretObject = `apiVersion: v1
kind: Secret
metadata: {name: s, namespace: shop, annotations: {kubectl.kubernetes.io/last-applied-configuration: "HUNTER2"}}
data: {password: SFVOVEVSMg==}
`

func compareURL(from, to string) string {
	return "/compare?" + url.Values{"from": {from}, "to": {to}}.Encode()
}

func TestCompare(t *testing.T) {
	named := func(name string) string { return strings.Replace(strict, "name: labels", "name: "+name, 1) }
	before := writeFiles(t, map[string]string{"policy.yaml": strict, "same.yaml": named("same"), "gone.yaml": named("gone"), "secret.yaml": secretObject})
	after := writeFiles(t, map[string]string{"policy.yaml": refusing(), "same.yaml": "# a comment\n" + named("same"), "new.yaml": named("new"), "secret.yaml": strings.Replace(secretObject, "shop", "mall", 1)})
	t.Chdir(filepath.Dir(before))
	c := newPolicyConsole(t, flags{config: after})
	_, page, _ := c.get("GET", "/compare", nil)
	c.wants(page, `value="dir:`+after+`"`)
	status, page, text := c.get("GET", compareURL("dir:"+before, "dir:"+after), nil)
	if status != http.StatusOK {
		t.Fatal(status, text)
	}
	c.wants(html.UnescapeString(text), "2 added, 2 removed, 1 changed, 1 unchanged", "removed AdmissionPolicy gone", "added AdmissionPolicy new", "changed AdmissionPolicy labels", `request.userInfo.username == "ann"`)
	for _, bad := range []string{"HUNTER", "SFVOVEVS", c.work} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
}

func TestCompareRefuses(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{"policy.yaml": strict})
	c := newPolicyConsole(t, flags{config: dir})
	outside := writeFiles(t, map[string]string{"policy.yaml": strict})
	link := filepath.Join(t.TempDir(), "outside")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		side   string
		status int
		want   string
	}{
		"a directory of the system": {"dir:/etc", 404, "is not a directory below"},
		"a directory above":         {"dir:" + dir + "/../..", 404, "is not a directory below"},
		"a link to a directory":     {"dir:" + link, 404, "is not a directory below"},
		"a revision":                {"git:HEAD:config", 400, "is no configuration"},
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
	c.wants(html.UnescapeString(text), "0 added, 0 removed, 1 changed, 0 unchanged", "gatehouse replay --config "+dir+" --against recorded --endpoint mutate --endpoint validate "+recording)
	_, page, _ := c.get("POST", "/compare", url.Values{"from": {"recorded"}, "to": {"dir:" + dir}})
	c.wants(c.waitForJob(page), "2 reviews", "100.0 % newly refused", "Pod/job, Pod/web")
	_, page, _ = c.get("POST", "/compare", url.Values{"from": {"dir:" + dir}, "to": {"dir:" + dir}})
	c.wants(c.waitForJob(page), "2 100.0 % unchanged")
}
