//go:build !unix

package support

func setUmask(int) {}
