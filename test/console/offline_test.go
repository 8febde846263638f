package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support/chromium"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

const objects = "testdata/objects"

// podReview is a review of a pod, with places for its UID, name, image, namespace and user.
const podReview = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":%[1]s,"kind":{"group":"","version":"v1","kind":"Pod"},` +
	`"resource":{"group":"","version":"v1","resource":"pods"},"requestKind":{"group":"","version":"v1","kind":"Pod"},` +
	`"requestResource":{"group":"","version":"v1","resource":"pods"},"name":%[2]s,"namespace":%[4]s,"operation":"CREATE","userInfo":{"username":%[5]s},` +
	`"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":%[2]s,"namespace":%[4]s,"labels":{"app":%[2]s}},"spec":{"containers":[{"name":"app","image":%[3]s}]}}}}`

// recorded is a recording of a real server, whose reviews have lookups and patches.
type recorded struct {
	// dir has the directories "config" of the server, and "recording".
	dir string
	// reviews are how many there are, and denied are the names of the pods that were refused.
	reviews int
	denied  []string
}

// hostileName is a name that nobody can give to an object of Kubernetes, but a recording can have it.
const hostileName = hostile + "\x1b[2J\x1b]0;title\x07\u202egnp.exe"

// record has a server decide on so many pods of two namespaces, and on one with a hostile name.
func record(t *testing.T, pods int) *recorded {
	t.Helper()
	r := &recorded{dir: t.TempDir(), reviews: 2 * (pods + 1)}
	config := filepath.Join(r.dir, "config")
	must(t, os.CopyFS(config, os.DirFS(objects)))
	must(t, os.WriteFile(filepath.Join(config, "namespaces.yaml"), []byte(namespaces), 0o600))
	s := gatehouse.StartLocal(t, config, "--record", filepath.Join(r.dir, "recording"))
	send := func(uid, name, image, namespace, user string) {
		for _, path := range []string{"/mutate", "/validate"} {
			must(t, s.Post(t.Context(), path, fmt.Appendf(nil, podReview, quoted(path[1:]+"-"+uid), quoted(name), quoted(image), quoted(namespace), quoted(user))))
		}
	}
	send("hostile", hostileName, "old.example/"+hostileName, mall, hostileName)
	for i := range pods {
		namespace, user, name, image := shop, anna, fmt.Sprintf("app-%03d", i), "registry.example/app:1"
		if i%2 == 1 {
			namespace, user = mall, ben
		}
		if i%10 == 0 {
			image = "old.example/app:1"
			r.denied = append(r.denied, name)
		}
		send(fmt.Sprint(i), name, image, namespace, user)
	}
	must(t, s.Signal(os.Interrupt))
	code, err := s.Wait(t.Context())
	if must(t, err); code != 0 {
		t.Fatalf("the server ends with the code %d", code)
	}
	return r
}

// quoted returns a text as JSON.
func quoted(text string) string {
	out, err := json.Marshal(text)
	if err != nil {
		panic(err) // texts can be encoded
	}
	return string(out)
}

const namespaces = `apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {logs: shipped}}
---
apiVersion: v1
kind: Namespace
metadata: {name: mall, labels: {logs: shipped}}
`

// TestOffline goes through a recording and a directory without a cluster: filter, open a decision, try a change, replay it.
func TestOffline(t *testing.T) {
	t.Parallel()
	const pods = 150
	r := record(t, pods)
	c := startAs(t, cluster.ProcessOptions{Dir: r.dir, Args: []string{"--config", "config", "--recording", "recording"}})
	p := c.open(t, "/decisions", desktop)
	got := waitFor(t, p, r.reviews)
	if len(got.Names) != rowsOfPage || got.Names[0] != fmt.Sprintf("app-%03d", pods-1) {
		t.Errorf("the list begins with %q", got.Names)
	}

	t.Run("filter", func(t *testing.T) {
		p := p.For(t)
		p.Fill("#namespace-0", shop)
		p.Evaluate(`document.querySelector("#decision-0").value = "denied"`, nil)
		if status := p.Follow("form.filter button"); status != http.StatusOK || !strings.Contains(p.URL(), "namespace=shop") || !strings.Contains(p.URL(), "decision=denied") {
			t.Fatalf("the form gives %d, %s", status, p.URL())
		}
		got := waitFor(t, p, len(r.denied))
		for _, name := range r.denied {
			if !slices.Contains(got.Names, name) {
				t.Errorf("%s is not among %q", name, got.Names)
			}
		}
		if command := p.Text(".command code"); !strings.Contains(command, "record show") || !strings.Contains(command, "--namespace shop") || !strings.Contains(command, "--decision denied") {
			t.Errorf("the command is %s", command)
		}
		c.check(t, p)
	})
	t.Run("a decision", func(t *testing.T) {
		p := p.For(t)
		if status := p.Follow("#decision-list tbody a[href*='/decisions/review']"); status != http.StatusOK {
			t.Fatalf("a decision gives %d", status)
		}
		c.settle(t, p)
		text := p.Text("main")
		for _, want := range []string{"the registry old.example is being switched off", "registries", "limits", "anna", "every container should have limits"} {
			if !strings.Contains(text, want) {
				t.Errorf("the decision does not show %q:\n%s", want, text)
			}
		}
		c.check(t, p)
	})
	t.Run("a patch", func(t *testing.T) {
		p := p.For(t)
		c.visit(t, p, "/decisions?endpoint=mutate&name=app-001")
		waitFor(t, p, 1)
		p.Follow("#decision-list tbody a[href*='/decisions/review']")
		var added []string
		p.Evaluate(`[...document.querySelectorAll(".diff .added")].map(e => e.textContent)`, &added)
		if !strings.Contains(strings.Join(added, "\n"), "log-shipper") {
			t.Errorf("the diff adds %q", added)
		}
		c.check(t, p)
	})
	t.Run("hostile text", func(t *testing.T) {
		p := p.For(t)
		for _, page := range []string{"/decisions?page=7", r.page("validate-hostile"), "/decisions?user=" + url.QueryEscape(hostileName), "/policies?q=" + url.QueryEscape(hostileName)} {
			c.visit(t, p, page)
			checkInert(t, p, strings.HasPrefix(page, "/decisions"))
			c.check(t, p)
		}
	})
	t.Run("try", func(t *testing.T) { tryCandidate(t, c, p.For(t), pods) })
}

// page returns that of a review.
func (r *recorded) page(id string) string {
	files, _ := filepath.Glob(filepath.Join(r.dir, "recording", "*.zst")) // the pattern is right
	return "/decisions/review?" + url.Values{"id": {id}, "file": {filepath.Base(files[0])}}.Encode()
}

// tryCandidate changes a policy in the browser, tries it on a manifest, and replays the recording.
func tryCandidate(t *testing.T, c *console, p *chromium.Page, pods int) {
	t.Helper()
	candidate, err := os.ReadFile("testdata/candidate/policies.yaml")
	must(t, err)
	c.visit(t, p, "/try?begin="+url.QueryEscape("AdmissionPolicy/registries"))
	p.Fill("#documents", string(candidate))
	p.Fill("#manifests", "apiVersion: v1\nkind: Pod\nmetadata: {name: tried, namespace: mall}\nspec: {containers: [{name: app, image: registry.example/app:1}]}\n")
	if status := p.Follow("button.primary"); status != http.StatusOK {
		t.Fatalf("try gives %d", status)
	}
	text := p.Text("#result")
	for _, want := range []string{"Pod/tried", "the mall has a registry of its own", "log-shipper"} {
		if !strings.Contains(text, want) {
			t.Errorf("the result does not show %q:\n%s", want, text)
		}
	}
	c.check(t, p)
	picture(t, p, "try")

	if status := p.Follow("button[value=replay]"); status != http.StatusOK {
		t.Fatalf("replay gives %d", status)
	}
	text = p.Text("#result")
	// Those of ben with an image of the registry: the others were refused before.
	if want := fmt.Sprintf("%d reviews of Pod in namespace mall", pods/2); !strings.Contains(text, want) {
		t.Errorf("the replay does not show %q:\n%s", want, text)
	}
	c.check(t, p)

	p.Fill("#documents", "kind: AdmissionPolicy\napiVersion: gatehouse.dev/v1alpha1\nmetadata: {name: broken}\nspec: {validations: [{expression: 'object.spec.'}]}\n")
	p.Follow("button.primary")
	if text := p.Text("#result"); !strings.Contains(text, "error: line 4: ") {
		t.Errorf("lint does not name the line:\n%s", text)
	}
	c.check(t, p)
}

// checkInert fails if hostile text has become anything but text.
func checkInert(t *testing.T, p *chromium.Page, shown bool) {
	t.Helper()
	var got struct {
		Ran, Shown bool
		Title      string
		Elements   []string
		Characters []string
	}
	p.Evaluate(`({
		Ran: window.ran !== undefined, Shown: document.body.innerText.includes('<script>window.ran=1</script>'), Title: document.title,
		Elements: [...document.querySelectorAll("img, iframe, object, embed, body script, [onerror], [onclick], [onload]")].map(e => e.outerHTML),
		Characters: [...document.body.innerText + document.title].filter(c => /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069]/.test(c)).map(c => "U+" + c.codePointAt(0).toString(16)),
	})`, &got)
	if got.Ran || len(got.Elements) > 0 || len(got.Characters) > 0 || got.Shown != shown || got.Title == "title" {
		t.Errorf("%s: hostile text is not inert: %+v", p.URL(), got)
	}
}
