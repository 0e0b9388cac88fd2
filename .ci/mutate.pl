# Mutants of Rust files, one per line of output, with tabs between:
#   file, line, operator, the line as it is, the line as it would be, the line with a switch
# The last one has both: `@` stands for the number that switches the mutant on, and `crate::prim::bug::mutant(@)` asks. So one build holds
# many of them. Called by .ci/mutants with the files. No parser: a line is taken apart where rustfmt puts blanks. What is built for tests
# only, says something to people, asserts, or is a seeded bug is left alone; so is what goes on over several lines.
use strict;
use warnings;

my $ask = 'crate::prim::bug::mutant(@)';
my %comparison = ('==' => '!=', '!=' => '==', '<' => '<=', '<=' => '<', '>' => '>=', '>=' => '>');
my %opposite = ('+=' => '-=', '-=' => '+=', '|=' => '&=', '&=' => '|=');
# What ends the operand of an operator that binds less and less: of arithmetic, of bits, of comparisons, of `&&` and `||`.
my $always = qr/ (?:=|=>|[-+|&]=|if|else|in|\.\.=?) |, |; |\b(?:if|while|return|match|let) | \{|\|/;
my $logic = qr/$always/;
my $compare = qr/$always| (?:&&|\|\|) /;
my $bits = qr/$compare| (?:==|!=|<=|>=|<|>|\||\^) /;
my $sum = qr/$bits| & | << | >> /;

# Where the expression begins and ends that has the operator at `$from..$to`, or nothing if that is not on this line.
sub extent {
    my ($code, $from, $to, $ends, $next) = @_;
    my ($begin, $depth) = ($from, 0);
    while ($begin > 0) {
        my $char = substr($code, $begin - 1, 1);
        if ($char =~ /[)\]}]/) { $depth++ }
        elsif ($char =~ /[(\[{]/) { last if $depth == 0; $depth-- }
        elsif ($depth == 0) {
            my $before = substr($code, 0, $begin);
            last if $before =~ /(?:$ends)$/ || $before =~ /^\s*$/;
        }
        $begin--;
    }
    return if $depth;
    my $left = substr($code, $begin, $from - $begin);
    return if $left !~ /\S/ || $left =~ /^\s*[.&|?]/ && $left !~ /^\s*&\w/;
    $begin++ while substr($code, $begin, 1) eq ' ';
    my ($end, $length) = ($to, length $code);
    while ($end < $length) {
        my $char = substr($code, $end, 1);
        if ($char =~ /[(\[{]/) { last if $depth == 0 && $char eq '{'; $depth++ }
        elsif ($char =~ /[)\]}]/) { last if $depth == 0; $depth-- }
        elsif ($depth == 0) {
            my $rest = substr($code, $end);
            last if $rest =~ /^(?:$ends)/ || $rest =~ /^(?:[,;]| =>)/;
        }
        $end++;
    }
    return if $depth;
    $end-- while $end > $to && substr($code, $end - 1, 1) eq ' ';
    # It goes on on the next line.
    return if $end == $length && $next =~ /^\s*(?:\.|[-+*\/%^?]|&[^&]|\|[^|]|==|!=|<|>|as\b)/;
    return if $end == $length && $ends eq $logic && $next =~ /^\s*(?:&&|\|\|)/;
    return ($begin, $end);
}

foreach my $path (@ARGV) {
    open(my $file, '<', $path) or die "$path: $!\n";
    my @lines = <$file>;
    close($file);
    chomp(@lines);
    my $skipped = -1;
    for my $at (0 .. $#lines) {
        my $line = $lines[$at];
        my $indent = length(($line =~ /^(\s*)/)[0]);
        # The rest of an item that is for tests, for people or a macro: until a line that closes it, at the column where it began.
        if ($skipped >= 0) {
            $skipped = -1 if $indent == $skipped && $line =~ /^\s*[})]/;
            next;
        }
        if ($line =~ /^\s*(impl\b.*\b(Debug|Display) for\b|mod tests\b|mod model\b|macro_rules!)/ && $line =~ /\{\s*$/) {
            $skipped = $indent;
            next;
        }
        # An attribute that keeps the next item for tests or models: to the end of that, which is on its own line or at its column.
        if ($line =~ /^\s*#\[cfg\((all\()?test\b/ || $line =~ /^\s*#\[cfg\((any\(loom, shuttle\)|loom)\)\]/) {
            my $item = $at + 1;
            $item++ while $item < $#lines && $lines[$item] =~ /^\s*(#\[|\/\/)/;
            if ($lines[$item] =~ /[{(]\s*$/) { $skipped = $indent } else { $lines[$item] = '' }
            next;
        }
        # A bug that is wrong on purpose, and the branch that it takes.
        if ($line =~ /seeded_bug\(/) {
            $skipped = $indent if $line =~ /^\s*if seeded_bug\(.*\{\s*$/;
            next;
        }
        next if $line =~ /^\s*(\/\/|#|use |pub\(crate\) use |const |pub(\(\w+\))? const |static |\}?\s*$)/;
        next if $line =~ /assert|unreachable!|panic!|"/;
        my ($code, $comment) = $line =~ /^(.*?)(\s*\/\/.*)?$/;
        $comment //= '';
        my $next = $at < $#lines ? $lines[$at + 1] : '';
        my @found;

        # An operator inside of an expression that can be written twice.
        my $twice = sub {
            my ($name, $pattern, $ends, $other) = @_;
            while ($code =~ /$pattern/g) {
                my ($from, $to) = ($-[0], $+[0]);
                my $with = $other->(substr($code, $from, $to - $from));
                my ($begin, $end) = extent($code, $from, $to, $ends, $next) or next;
                my $whole = substr($code, $begin, $end - $begin);
                next if $name eq 'logic' && $whole =~ /\blet\b/;
                my $mutant = substr($code, $begin, $from - $begin) . $with . substr($code, $to, $end - $to);
                my ($head, $tail) = (substr($code, 0, $begin), substr($code, $end));
                push @found, [$name, "$head$mutant$tail", "$head(if $ask { $mutant } else { $whole })$tail"];
            }
        };
        # A piece that is replaced on its own.
        my $piece = sub {
            my ($name, $pattern, $mutant, $switch) = @_;
            while ($code =~ /$pattern/g) {
                my ($from, $to) = ($-[0], $+[0]);
                my ($head, $tail, $was) = (substr($code, 0, $from), substr($code, $to), substr($code, $from, $to - $from));
                push @found, [$name, $head . $mutant->($was) . $tail, $head . $switch->($was) . $tail];
            }
        };
        unless ($code =~ /^\s*(pub(\([a-z]+\))? )?(unsafe )?(fn|impl|struct|enum|trait|type|where)\b/) {
            $twice->('comparison', qr/(?<= )(?:==|!=|<=|>=|<|>)(?= )/, $compare, sub { $comparison{$_[0]} });
            $twice->('logic', qr/(?<=[\w)\]?] )(?<!move )(?:&&|\|\|)(?= )/, $logic, sub { $_[0] eq '&&' ? '||' : '&&' });
            $twice->('bits', qr/(?<= )&(?= )/, $bits, sub { '|' });
            $twice->('one', qr/ [+-] 1\b(?![._\w])/, $sum, sub { '' });
            $piece->('not', qr/(?<![\w!])!(?=[\w(])/, sub { '' }, sub { 'crate::prim::bug::Not(@) * ' });
            $piece->('ordering', qr/Ordering::(?:SeqCst|AcqRel|Acquire|Release)\b/, sub { 'Ordering::Relaxed' },
                sub { "crate::prim::bug::weaker(@, $_[0])" });
            if ($at > 0 && $lines[$at - 1] =~ /(^\s*|[;{},\]]|^\s*\/\/.*)$/ && $code =~ /^(\s*)(.*;)$/) {
                my ($blanks, $statement) = ($1, $2);
                # A call whose answer is not used.
                push @found, ['call', "${blanks}();", "${blanks}if !$ask { $statement }"]
                    if $statement =~ /^(unsafe \{ )?[\w.:*&\[\]]+\(.*\)( \})?;$/ && $statement !~ /^(let|return)\b/;
                if ($statement =~ /^([\w.*\[\]]+) ([-+|&]=) (.*;)$/) {
                    my $other = "$1 $opposite{$2} $3";
                    push @found, ['change', $blanks . $other, "${blanks}if $ask { $other } else { $statement }"];
                }
                push @found, ['answer', "${blanks}return !$1;", "${blanks}return $1 ^ $ask;"] if $statement =~ /^return (true|false);$/;
            }
        }
        if ($code =~ /\bfn \w+.*-> bool \{$/ && $code !~ /\bconst fn\b/) {
            push @found, ['answer', "$code return $_;", "$code if $ask { return $_; }"] foreach 'true', 'false';
        }
        print join("\t", $path, $at + 1, $_->[0], $line, $_->[1] . $comment, $_->[2] . $comment), "\n" foreach @found;
    }
}
