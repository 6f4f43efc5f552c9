// Checks pods with Kubernetes' own Pod Security admission. It reads pods as JSON, and prints one line for each: the reasons
// for which the newest profile "restricted" refuses it. The list is empty if it admits the pod.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

var version string

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--version" {
		fmt.Println(version)
		return
	}
	if err := answer(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func answer(questions io.Reader, answers io.Writer) error {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return err
	}
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	pods, said := json.NewDecoder(bufio.NewReader(questions)), json.NewEncoder(answers)
	for {
		var pod corev1.Pod
		if err := pods.Decode(&pod); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		refusals := []string{}
		for _, result := range evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec) {
			if !result.Allowed {
				refusals = append(refusals, result.ForbiddenReason+": "+result.ForbiddenDetail)
			}
		}
		if err := said.Encode(refusals); err != nil {
			return err
		}
	}
}
