"""Sentences of memories, labelled by hand with the passages that state them; the pool is that of `data/samples`.

A sentence with an empty label is stated by no passage of the pool. The wordings are of three kinds: those of
the built-in agent, free ones as a larger model writes them, and wrong or invented statements.
"""

from __future__ import annotations

CASES: tuple[tuple[str, frozenset[str]], ...] = tuple(
    (sentence, frozenset(ids.split()))
    for sentence, ids in (
        # As the built-in agent writes.
        (".ci is the internet country code of Cote d'Ivoire.", "iv-codes-0"),
        ("The main export partner of Cote d'Ivoire is Ghana.", "iv-exports-0"),
        ("The capital of Ghana is Accra.", "gh-capital-0"),
        ("Vpadina Akchanaya is the lowest point of Turkmenistan.", "tx-elevation-0"),
        ("Turkmenistan became independent on 27 October 1991.", "tx-independence-0"),
        ("The baht is the currency of Thailand.", "th-currency-0"),
        ("The official language of Thailand is Thai.", "th-languages-0"),
        ("Vientiane is the capital of Laos.", "la-capital-0"),
        ("Laos became independent on 19 July 1949.", "la-independence-0"),
        ("Moca is the highest point of Angola.", "ao-elevation-0"),
        ("The main import partner of Angola is China.", "ao-imports-0"),
        ("The capital of China is Beijing.", "ch-capital-0"),
        # As a larger model might.
        ("Ghana's capital, Accra, had about 2.277 million people in 2015.", "gh-capital-0"),
        ("Ghana buys a quarter of its imports from China (25.5%).", "gh-imports-0"),
        ("Formerly called the Gold Coast, Ghana is a constitutional democracy.", "gh-name-0"),
        ("Two thirds of Ivorians live from farming.", "iv-economy-0"),
        ("Cote d'Ivoire leads the world in producing and exporting cocoa beans.", "iv-economy-0"),
        ("Its former name was Ivory Coast.", "iv-name-0"),
        ("Turkmenistan's anthem was adopted in 1997 and its lyrics were revised in 2008.", "tx-anthem-0"),
        ("Turkmenistan was the Turkmen Soviet Socialist Republic before.", "tx-name-0"),
        ("Khan Tangiri Shyngy, at 6,995 m, is Kazakhstan's highest point.", "kz-elevation-0"),
        ("In Macedonia the Vardar River is the lowest point.", "mk-elevation-0"),
        ("One US dollar bought 32.484 baht in 2014.", "th-currency-0"),
        ("Thais are mostly Buddhist (93.6%).", "th-languages-0"),
        ("Peru has Spanish, Quechua and Aymara as official languages.", "pe-languages-0"),
        ("Shona is the most widely spoken official language of Zimbabwe.", "zi-languages-0"),
        ("Laos celebrates Republic Day on 2 December.", "la-independence-0"),
        ("The Lao call their country Pathet Lao, unofficially.", "la-capital-0 la-name-0"),
        ("Oil accounts for half of what Angola produces and for most of what it sells abroad.", "ao-economy-0"),
        ("China takes 48.1% of Angola's exports.", "ao-exports-0"),
        ("Snezka (1,602 m) is the top of the Czech Republic.", "ez-elevation-0"),
        ("Shanghai is larger than Beijing, with 23.741 million people.", "ch-capital-0"),
        ("Jamaica imports most from the US (39.3%), then Venezuela.", "jm-imports-0"),
        ("Niger's uranium deposits are among the world's largest.", "ng-economy-0"),
        ("Andorra has two princes: France's President and the Bishop of Urgell.", "an-capital-0"),
        # Wrong, invented, or about nothing that was found.
        ("Laos became independent on 19 July 1939.", ""),
        ("Turkmenistan became independent on 27 October 199", ""),
        ("The capital of Ghana is Kumasi.", ""),
        ("The capital of Thailand is Bangkok.", ""),
        ("Ghana became independent on 6 March 1957.", ""),
        ("The currency of Laos is the kip.", ""),
        ("Angola's highest point is 2,800 m.", ""),
        ("The main export partner of China is the US.", ""),
        ("I still need to find the capital of the export partner.", ""),
        ("The question asks for an official language.", ""),
        ("Turkmenistan joined the United Nations in 1992.", ""),
        ("Burmese is the official language of Thailand.", ""),
        ("The president of China was born in Beijing.", ""),
    )
)
