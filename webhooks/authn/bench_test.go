package authn_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

func BenchmarkReview(b *testing.B) {
	for _, n := range []int{1, 100_000} {
		texts := make([]string, n)
		tokens := make([]authn.Token, n)
		for i := range n {
			id := "t" + strconv.Itoa(i)
			texts[i], tokens[i] = issue(id, byte(i), audiences(apiServer))
		}
		set := compile(b, tokens...)
		wrong, _ := issue("t0", 255)
		for name, token := range map[string]func(i int) string{
			"yes":     func(i int) string { return texts[i*7919%n] },
			"wrong":   func(int) string { return wrong },
			"unknown": func(int) string { return goldenToken },
			"foreign": func(int) string { return "eyJhbGciOiJSUzI1NiJ9.e30.c2ln" },
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				ctx := b.Context()
				req := request("", apiServer)
				for i := 0; b.Loop(); i++ {
					req.Spec.Token = token(i)
					set.Decide(ctx, inputOf(req)).Response()
				}
			})
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	tokens := make([]authn.Token, 100_000)
	for i := range tokens {
		_, tokens[i] = issue("t"+strconv.Itoa(i), byte(i))
	}
	b.ReportAllocs()
	for b.Loop() {
		compile(b, tokens...)
	}
}
