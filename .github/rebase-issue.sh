#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Keeps the one issue about the series on upstream's main.
# Usage: rebase-issue.sh CODE SUMMARY RUN
#   CODE     0: the series applies; 3: it does not
#   SUMMARY  the table of the check, as Markdown
#   RUN      the page of the run
set -euo pipefail

code=$1 summary=$2 run=$3
label=rebase-check
title='The series does not apply to the main branch of vLLM'

# Closed ones count: the same issue is reopened, so there is never a second.
found=$(gh issue list --label "$label" --state all --limit 1 \
  --json number,state --jq '.[0] | select(.) | "\(.number) \(.state)"')
number=${found%% *} state=${found##* }

case $code in
0)
  if [ -n "$number" ] && [ "$state" = OPEN ]; then
    gh issue close "$number" --comment "It applies again: $run"
  fi
  ;;
3)
  body=$(mktemp)
  trap 'rm -f "$body"' EXIT
  { cat "$summary" && printf '\nFrom %s, updated in place.\n' "$run"; } >"$body"
  if [ -z "$number" ]; then
    gh label create "$label" --force --description 'The series on upstream main'
    gh issue create --title "$title" --label "$label" --body-file "$body"
  else
    if [ "$state" != OPEN ]; then
      gh issue reopen "$number"
    fi
    gh issue edit "$number" --body-file "$body"
  fi
  ;;
*)
  echo "the check ended with $code: no answer, and the issue stays as it is" >&2
  exit 1
  ;;
esac
