package session

import (
	"strings"
	"testing"
	"time"
)

func TestParseCall(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for _, c := range []struct {
		name, info  string
		version     string
		interactive *bool
		says        string
	}{
		{
			name: "v1", info: `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"interactive":true}}`,
			version: "client.authentication.k8s.io/v1", interactive: &yes,
		},
		{
			name: "v1 with a cluster", version: "client.authentication.k8s.io/v1", interactive: &no,
			info: `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"cluster":{"server":"https://a"},"interactive":false},"status":null}`,
		},
		{
			name: "v1beta1", info: `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1","spec":{"interactive":false}}`,
			version: "client.authentication.k8s.io/v1beta1", interactive: &no,
		},
		{
			name: "v1beta1 of an old kubectl", info: `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1","spec":{}}`,
			version: "client.authentication.k8s.io/v1beta1",
		},
		{name: "v1alpha1", info: `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1alpha1"}`, says: `apiVersion "client.authentication.k8s.io/v1alpha1"`},
		{name: "no version", info: `{"kind":"ExecCredential"}`, says: `apiVersion ""`},
		{name: "another group", info: `{"kind":"ExecCredential","apiVersion":"v1"}`, says: `apiVersion "v1"`},
		{name: "another kind", info: `{"kind":"Pod","apiVersion":"client.authentication.k8s.io/v1"}`, says: `kind "Pod"`},
		{name: "not JSON", info: `hush`, says: "must be an ExecCredential in JSON"},
		{name: "wrong type", info: `{"kind":"ExecCredential","spec":{"interactive":"hush"}}`, says: "must be an ExecCredential in JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseCall(c.info)
			if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hush")) {
				t.Fatalf("got %v, want %q", err, c.says)
			}
			if got.APIVersion != c.version || (got.Interactive == nil) != (c.interactive == nil) || got.Interactive != nil && *got.Interactive != *c.interactive {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	yes := true
	for _, c := range []struct {
		call Call
		want string
	}{
		{
			Call{"client.authentication.k8s.io/v1", &yes},
			`{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"interactive":true},"status":{"expirationTimestamp":"2026-11-20T12:59:30Z","token":"hush"}}`,
		},
		{
			Call{"client.authentication.k8s.io/v1beta1", nil},
			`{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1","spec":{"interactive":false},"status":{"expirationTimestamp":"2026-11-20T12:59:30Z","token":"hush"}}`,
		},
	} {
		got, err := c.call.Answer(credential("hush", noon, time.Hour))
		if err != nil || string(got) != c.want+"\n" {
			t.Errorf("%v\n%s\nwant\n%s", err, got, c.want)
		}
	}
}

func FuzzParseCall(f *testing.F) {
	f.Add(`{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"interactive":true}}`)
	f.Add(`{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1","spec":null}`)
	f.Fuzz(func(t *testing.T, info string) {
		got, err := ParseCall(info)
		if err == nil && !strings.HasPrefix(got.APIVersion, "client.authentication.k8s.io/v1") {
			t.Errorf("got %+v", got)
		}
	})
}
