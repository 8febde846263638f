package image_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/image"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"nginx":                                     "docker.io/library/nginx latest ",
		"nginx:1.27":                                "docker.io/library/nginx 1.27 ",
		"shop/app":                                  "docker.io/shop/app latest ",
		"docker.io/nginx":                           "docker.io/library/nginx latest ",
		"index.docker.io/nginx":                     "docker.io/library/nginx latest ",
		"docker.io/shop/app:v1":                     "docker.io/shop/app v1 ",
		"registry.example/legacy/app":               "registry.example/legacy/app latest ",
		"registry.example:5000/app:v1":              "registry.example:5000/app v1 ",
		"registry:5000/app":                         "registry:5000/app latest ",
		"localhost/app":                             "localhost/app latest ",
		"REGISTRY.example/legacy/app":               "REGISTRY.example/legacy/app latest ",
		"REGISTRY/legacy/app":                       "REGISTRY/legacy/app latest ",
		"[2001:db8::1]:5000/app":                    "[2001:db8::1]:5000/app latest ",
		"nginx@" + digest:                           "docker.io/library/nginx  " + digest,
		"registry.example/app:v1@" + digest:         "registry.example/app  " + digest,
		"registry.example/legacy/../evil/app":       "",
		"registry.example/legacy/./app":             "",
		"registry.example//legacy/app":              "",
		"registry.example/legacy/app/":              "",
		"registry.example/legacy/App":               "",
		"registry.example/legacy/a%2fb":             "",
		"registry.example/legacy/app:":              "",
		"registry.example/legacy/app@":              "",
		"registry.example/legacy/app@sha256:":       "",
		"registry.example/legacy/app:v1:v2":         "",
		"evil.example/x@registry.example/a":         "",
		"https://registry.example/legacy/app":       "",
		"nginx\x20":                                 "",
		"nginx\n":                                   "",
		"":                                          "",
		"/":                                         "",
		strings.TrimPrefix(digest, "sha256:"):       "",
		"r.example/" + strings.Repeat("a", 256):     "",
		"r.example/" + strings.Repeat("a/", 1<<20):  "",
		"r.example/a:" + strings.Repeat("v", 128):   "r.example/a " + strings.Repeat("v", 128) + " ",
		"r.example/a:" + strings.Repeat("v", 1+128): "",
	} {
		got := ""
		if r, ok := image.Parse(text); ok {
			got = r.Name + " " + r.Tag + " " + r.Digest
		}
		if got != want {
			t.Errorf("%.80q is %q, want %q", text, got, want)
		}
	}
}

func TestPattern(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ pattern, matching, others string }{
		{
			"registry.example/legacy/*",
			"registry.example/legacy/app registry.example/legacy/app:v1 registry.example/legacy/app@" + digest,
			"registry.example/legacy registry.example/legacy/team/app registry.example/legacy/../app registry.example/legacyapp REGISTRY.example/legacy/app " +
				"registry.example:5000/legacy/app registry.example.evil/legacy/app evil/registry.example/legacy/app legacy/app registry.example/other/app evil.example/registry.example/legacy/app",
		},
		{"registry.example/legacy/**", "registry.example/legacy/app registry.example/legacy/team/app:v1", "registry.example/legacy registry.example/legacy2/app registry.example/other/legacy/app"},
		{"registry.example/**", "registry.example/a registry.example/a/b/c", "registry.example2/a a registry.example:5000/a"},
		{"registry.example/*/app", "registry.example/a/app registry.example/b/app:v1", "registry.example/a/b/app registry.example/app registry.example/a/app2"},
		{"registry.example/app-*:v1.*", "registry.example/app-a:v1.2 registry.example/app-a-b:v1.", "registry.example/app-a registry.example/app-a:v2 registry.example/app-a:v1.2@" + digest},
		{"registry.example/app:v1", "registry.example/app:v1", "registry.example/app registry.example/app:v10 registry.example/app@" + digest + " registry.example/app:v1@" + digest},
		{"registry.example/app:latest", "registry.example/app registry.example/app:latest", "registry.example/app@" + digest},
		{"registry.example/app", "registry.example/app registry.example/app:v1 registry.example/app:v1@" + digest, "registry.example/app2 registry.example/app/x"},
		{"registry.example/app@" + digest, "registry.example/app@" + digest + " registry.example/app:any@" + digest, "registry.example/app registry.example/app@sha256:" + strings.Repeat("0", 64) + " registry.example/b@" + digest},
		{"registry.example/*@" + digest, "registry.example/b@" + digest, "registry.example/b registry.example/a/b@" + digest},
		{"nginx", "nginx nginx:1 docker.io/nginx index.docker.io/library/nginx", "shop/nginx registry.example/nginx registry.example/library/nginx"},
		{"shop/*", "shop/app docker.io/shop/app", "shop/a/b registry.example/shop/app"},
		{"docker.io/**", "nginx shop/app", "registry.example/app"},
		{"docker.io/*", "nginx docker.io/redis", "shop/app"},
		{"docker.io/library/**", "nginx docker.io/library/a/b", "shop/app"},
		{"index.docker.io/library/*", "nginx", "shop/app"},
		{"library/**", "nginx", "shop/app"},
		{"*.registry.example/app", "eu.registry.example/app", "registry.example/app a.b.registry.example/app a.b.registry.example.evil/app evil.example/app localhost/a.registry.example/app registry:5000/a.registry.example/app"},
		{"registry:5000/*", "registry:5000/app", "registry/app registry:5001/app"},
		{"localhost/*", "localhost/app", "app"},
	} {
		p, err := image.ParsePattern(tc.pattern)
		if err != nil {
			t.Errorf("%s: %v", tc.pattern, err)
			continue
		}
		for _, list := range []struct {
			images string
			want   bool
		}{{tc.matching, true}, {tc.others, false}} {
			for text := range strings.FieldsSeq(list.images) {
				if r, ok := image.Parse(text); ok && p.Matches(r) != list.want || !ok && list.want {
					t.Errorf("%s matches %s: %v, want %v", tc.pattern, text, !list.want, list.want)
				}
			}
		}
		if p.Matches(image.Reference{}) {
			t.Errorf("%s matches nothing at all", tc.pattern)
		}
	}
}

func TestWrongPatterns(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                      "can match no image",
		"*":                                     "leaves the registry open",
		"**":                                    "leaves the registry open",
		"*/app":                                 "leaves the registry open",
		"**/app":                                "leaves the registry open",
		"*.*/app":                               "leaves the registry open",
		"registry.example*/app":                 "leaves the registry open",
		"*registry.example/app":                 "leaves the registry open",
		"reg*.example/app":                      "leaves the registry open",
		"registry.example:*/app":                "can match no image",
		"registry.example/**/app":               `has a "**" that is not all of its last part`,
		"registry.example/legacy**":             `has a "**" that is not all of its last part`,
		"registry.example/legacy/***":           `has a "**" that is not all of its last part`,
		"registry.example/":                     "can match no image",
		"registry.example/Legacy/*":             "can match no image",
		"registry.example/legacy/../*":          "can match no image",
		"registry.example/[a-z]":                "can match no image",
		"registry.example/a?":                   "can match no image",
		`registry.example/a\*`:                  "can match no image",
		"registry.example/{a,b}":                "can match no image",
		"https://registry.example/a":            "can match no image",
		"[::1]/a":                               "can match no image",
		"registry.example/app:":                 "has no tag that an image can have",
		"registry.example/app:a b":              "has no tag that an image can have",
		"registry.example/app:[a]":              "has no tag that an image can have",
		"registry.example/app@sha256:*":         "has no digest that an image can have",
		"registry.example/app@sha256:ABC":       "has no digest that an image can have",
		"registry.example/app:v1@" + digest:     "has a tag and a digest",
		"r.example/" + strings.Repeat("a", 256): "can match no image",
		strings.Repeat("a", 1<<20):              "is too long",
	} {
		_, err := image.ParsePattern(text)
		var problem *image.PatternError
		if !errors.As(err, &problem) || problem.Problem != want {
			t.Errorf("%.80q: %v, want %s", text, err, want)
		}
	}
}

// FuzzPattern compares a pattern with what it promises about the images that it matches.
func FuzzPattern(f *testing.F) {
	for _, seed := range [][2]string{
		{"registry.example/legacy/*", "registry.example/legacy/app:v1"},
		{"registry.example/legacy/**", "registry.example/legacy/a/b@" + digest},
		{"nginx:1.*", "docker.io/library/nginx:1.27"},
		{"*.registry.example/app", "eu.registry.example/app"},
		{"registry.example/app@" + digest, "registry.example/app:v1@" + digest},
		{"docker.io/**", "index.docker.io/nginx"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		r, isImage := image.Parse(text)
		if isImage {
			whole := r.Name
			if r.Tag != "" {
				whole += ":" + r.Tag
			} else {
				whole += "@" + r.Digest
			}
			if again, ok := image.Parse(whole); !ok || again != r {
				t.Errorf("%q is %+v, and %q is %+v", text, r, whole, again)
			}
			// An image is a pattern of itself, but for registries and digests that no pattern can have.
			if p, err := image.ParsePattern(r.Name); err == nil && !p.Matches(r) {
				t.Errorf("%q does not match itself", r.Name)
			}
		}
		p, err := image.ParsePattern(pattern)
		if err != nil || !isImage || !p.Matches(r) {
			return
		}
		name, _, pinned := strings.Cut(pattern, "@")
		if pinned != strings.HasSuffix(pattern, "@"+r.Digest) {
			t.Errorf("%q matches %q of another digest", pattern, text)
		}
		registry, _, _ := strings.Cut(r.Name, "/")
		first, _, hasPath := strings.Cut(name, "/")
		open, hasStar := strings.CutPrefix(first, "*.")
		_, below, _ := strings.Cut(registry, ".")
		switch {
		case hasStar && hasPath && below == open:
		case hasPath && first == registry:
		case registry == "docker.io" && (!hasPath || !strings.ContainsAny(first, ".:") || first == "index.docker.io"):
		default:
			t.Errorf("%q matches %q, which is on another registry", pattern, text)
		}
		if strings.Contains(r.Name, "..") || strings.Contains(r.Name, "//") {
			t.Errorf("%q matches %q", pattern, text)
		}
		if !strings.Contains(pattern, "**") && hasPath && first == registry && registry != "docker.io" && strings.Count(name, "/") != strings.Count(r.Name, "/") {
			t.Errorf("%q matches %q across a slash", pattern, text)
		}
	})
}
